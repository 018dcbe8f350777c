//! Prefetches memory on processors that support it, and requests large pages on Linux.

/// Starts to fetch an element into the cache.
#[inline]
pub fn prefetch<T>(all: &[T], place: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(one) = all.get(place) {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: the instruction is only a hint, and every x86-64 processor supports it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(one).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (all, place);
}

/// Allocates room for `count` elements, in large pages if possible. Large pages need fewer entries in the processor's
/// address cache, so scattered reads over several megabytes are faster.
pub fn room<T>(count: usize) -> Vec<T> {
    let room = Vec::<T>::with_capacity(count);
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let (start, size) = (room.as_ptr() as usize, count * size_of::<T>());
        let (first, end) = (start.next_multiple_of(PAGE), (start + size) / PAGE * PAGE);
        if first < end {
            // SAFETY: these are whole pages of our own memory, and the advice does not change their content.
            unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
        }
    }
    room
}
