//! Asks for memory before it is read, where the processor can do that.

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
