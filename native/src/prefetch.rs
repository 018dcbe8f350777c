//! Asks for memory before it is read, where the processor can do that; and for large pages, where Linux gives them.

/// Fetches an element into the cache, while the processor goes on.
#[inline]
pub fn prefetch<T>(all: &[T], place: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(one) = all.get(place) {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: it reads nothing, and every x86-64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(one).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (all, place);
}

/// Returns room for `count` elements. In large pages, of which the processor knows more addresses than of usual ones,
/// reads here and there of some megabytes take less time.
pub fn room<T>(count: usize) -> Vec<T> {
    let room = Vec::<T>::with_capacity(count);
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let (start, size) = (room.as_ptr() as usize, count * size_of::<T>());
        let (first, end) = (start.next_multiple_of(PAGE), (start + size) / PAGE * PAGE);
        if first < end {
            // SAFETY: whole pages of memory that is ours; the advice changes nothing that is in them.
            unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
        }
    }
    room
}
