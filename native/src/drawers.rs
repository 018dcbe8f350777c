//! Looks up fingerprints in the drawers of a base: `hsimhash.store.base_files.base_file`.

use crate::prefetch::prefetch;
use numpy::{IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use std::ops::Range;

/// Number of buckets looked up together: while the rows of one are read, the rows of the others are prefetched.
const TOGETHER: usize = 320;
const FLAG_BITS: u32 = 8;
/// Bytes of a row in the key drawer: its segment and its fingerprint.
const KEYED_BYTES: usize = 12;
/// Number of fences to search on each side of a segment's expected position.
const FENCES_AROUND: usize = 64;

/// The indices of a drawer's first cell and first row; the shifts and masks that turn a fingerprint into the index of a
/// cell; and the maximum number of rows in a cell that is not wide.
#[derive(FromPyObject)]
struct Drawer(usize, usize, Vec<(u32, u64)>, usize);

/// A cell that a query reads: the index of the query, the index of the drawer, and the cell's position in the
/// directory.
#[derive(Clone, Copy)]
struct Read {
    query: usize,
    drawer: usize,
    cell: usize,
}

/// Why a query could not be answered.
enum Open {
    /// A cell has so many rows that only the rows in the bucket should be read.
    Wide,
    /// These blocks must be verified first.
    Unread(Vec<usize>),
}

/// The arrays of a base.
struct Mapped<'a> {
    drawers: &'a [Drawer],
    values: &'a [u64],
    directory: &'a [u32],
    /// By block: whether it and the next block are verified.
    are_whole: &'a [u8],
    block_shift: u32,
    cell_shift: u32,
}

impl Mapped<'_> {
    /// Returns the cells of a fingerprint, one per drawer.
    fn own(&self, query: usize, fingerprint: u64) -> impl Iterator<Item = Read> + '_ {
        let wide = u128::from(fingerprint) << u32::BITS;
        self.drawers.iter().enumerate().map(move |(drawer, Drawer(cells, _, moves, _))| {
            let place = |at, &(shift, mask): &(u32, u64)| at + ((wide >> shift) as u64 & mask) as usize;
            Read { query, drawer, cell: moves.iter().fold(*cells, place) }
        })
    }

    /// Returns the cell of a bucket, given its prefix as a number of 40 bits.
    fn of_bucket(&self, query: usize, number: u64) -> Read {
        let drawer = (number & ((1 << FLAG_BITS) - 1)) as usize - 1;
        Read { query, drawer, cell: self.drawers[drawer].0 + (number >> self.cell_shift) as usize }
    }

    #[inline]
    fn rows(&self, read: Read) -> Range<usize> {
        let first = self.drawers[read.drawer].1;
        first + self.directory[read.cell] as usize..first + self.directory[read.cell + 1] as usize
    }

    /// Calls `found` with the index of a query and a value, for each value within the distance in the query's cells.
    fn near(
        &self,
        queries: &[u64],
        distance: u32,
        reads: impl Iterator<Item = Read>,
        mut found: impl FnMut(usize, u64),
    ) -> Result<(), Open> {
        let (mut reads, mut some, mut unread) = (reads, Vec::with_capacity(TOGETHER), Vec::new());
        loop {
            some.clear();
            some.extend(reads.by_ref().take(TOGETHER).inspect(|read| prefetch(self.directory, read.cell)));
            if some.is_empty() {
                return if unread.is_empty() { Ok(()) } else { Err(Open::Unread(unread)) };
            }
            some.iter().for_each(|&read| prefetch(self.values, self.rows(read).start));
            for &read in &some {
                let rows = self.rows(read);
                if rows.is_empty() {
                    continue;
                }
                if rows.len() > self.drawers[read.drawer].3 {
                    return Err(Open::Wide);
                }
                let block = rows.start >> self.block_shift;
                if self.are_whole[block] == 0 {
                    unread.push(block);
                    continue;
                }
                let query = queries[read.query];
                let near = self.values[rows].iter().filter(|&&value| (value ^ query).count_ones() <= distance);
                near.for_each(|&value| found(read.query, value));
            }
        }
    }
}

/// Returns the index of the first fence that is not below a segment. Segments are hashes, so the value of a segment
/// predicts this index.
fn fence_of(fences: &[u32], segment: u32) -> usize {
    let about = ((u64::from(segment) * fences.len() as u64) >> u32::BITS) as usize;
    let (start, end) = (about.saturating_sub(FENCES_AROUND), (about + FENCES_AROUND).min(fences.len()));
    let is_around = (start == 0 || fences[start - 1] < segment) && (end == fences.len() || fences[end] >= segment);
    let (start, end) = if is_around { (start, end) } else { (0, fences.len()) };
    start + fences[start..end].partition_point(|&fence| fence < segment)
}

/// The drawers of a mapped base. Its methods return None if a cell is wide. Otherwise they return what they found, and
/// the blocks to verify before calling them again.
#[pyclass(frozen)]
pub struct Drawers {
    drawers: Vec<Drawer>,
    values: Py<PyArray1<u64>>,
    directory: Py<PyArray1<u32>>,
    keyed: Keyed,
    are_whole: Py<PyArray1<u8>>,
    block_shift: u32,
    cell_shift: u32,
}

/// The fences of the key drawer, the bytes of its rows, the number of rows per fence, and the maximum number of rows in
/// a bucket that is not wide.
#[derive(FromPyObject)]
struct Keyed(Py<PyArray1<u32>>, Py<PyArray1<u8>>, usize, usize);

/// Fingerprints found under segments, with the index of the segment for each; and blocks to verify.
type UnderKeys = (Vec<(usize, u64)>, Vec<usize>);

type Pairs<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u64>>, Vec<usize>);

impl Drawers {
    fn mapped<'a>(&'a self, py: Python<'a>) -> PyResult<Mapped<'a>> {
        // SAFETY: nothing writes to the first two arrays. Bytes of the third array may change from 0 to 1 at any time;
        // both values are safe.
        unsafe {
            Ok(Mapped {
                drawers: &self.drawers,
                values: self.values.bind(py).as_slice()?,
                directory: self.directory.bind(py).as_slice()?,
                are_whole: self.are_whole.bind(py).as_slice()?,
                block_shift: self.block_shift,
                cell_shift: self.cell_shift,
            })
        }
    }
}

#[pymethods]
impl Drawers {
    /// Args: the drawers; all rows; the directory; the key drawer; for each block, whether it and the next block are
    /// verified; the number of low bits of a row's position within its block; and the number of low bits of a bucket's
    /// number within its cell.
    #[new]
    fn new(
        drawers: Vec<Drawer>,
        values: Py<PyArray1<u64>>,
        directory: Py<PyArray1<u32>>,
        keyed: Keyed,
        are_whole: Py<PyArray1<u8>>,
        block_shift: u32,
        cell_shift: u32,
    ) -> Self {
        Drawers { drawers, values, directory, keyed, are_whole, block_shift, cell_shift }
    }

    /// Return the fingerprints under segments of the key drawer, with the index of the segment for each; and blocks to
    /// verify.
    fn under_keys(&self, py: Python<'_>, segments: Vec<u32>) -> PyResult<Option<UnderKeys>> {
        // SAFETY: as in `mapped`.
        let (fences, keyed, are_whole) = unsafe {
            (self.keyed.0.bind(py).as_slice()?, self.keyed.1.bind(py).as_slice()?, self.are_whole.bind(py).as_slice()?)
        };
        let (before, block_bytes) =
            (self.values.bind(py).len()? * size_of::<u64>(), size_of::<u64>() << self.block_shift);
        let (fence_bytes, wide_rows) = (self.keyed.2 * KEYED_BYTES, self.keyed.3);
        let (mut found, mut unread) = (Vec::new(), Vec::new());
        for (place, &segment) in segments.iter().enumerate() {
            let first = fence_of(fences, segment);
            let equal = fences[first..].iter().take_while(|&&fence| fence == segment).take(wide_rows).count();
            let start = first.saturating_sub(1) * fence_bytes;
            let end = ((first + equal) * fence_bytes).min(keyed.len());
            if end > start + wide_rows * KEYED_BYTES {
                return Ok(None);
            }
            let block = (before + start) / block_bytes;
            if start < end && are_whole[block] == 0 {
                unread.push(block);
                continue;
            }
            for row in keyed[start..end].chunks_exact(KEYED_BYTES) {
                let (own, fingerprint) = row.split_at(size_of::<u32>());
                if own == segment.to_le_bytes() {
                    found.push((place, u64::from_le_bytes(fingerprint.try_into().expect("8 bytes"))));
                }
            }
        }
        Ok(Some((found, unread)))
    }

    /// Return the values within a distance of a fingerprint, and blocks to verify.
    fn near(&self, py: Python<'_>, fingerprint: u64, distance: u32) -> PyResult<Option<(Vec<u64>, Vec<usize>)>> {
        let (mapped, mut found) = (self.mapped(py)?, Vec::new());
        let reads = mapped.own(0, fingerprint);
        Ok(match mapped.near(&[fingerprint], distance, reads, |_, value| found.push(value)) {
            Ok(()) => Some((found, Vec::new())),
            Err(Open::Unread(blocks)) => Some((Vec::new(), blocks)),
            Err(Open::Wide) => None,
        })
    }

    /// Return the values within a distance of fingerprints, with the index of the fingerprint for each; and blocks to
    /// verify.
    ///
    /// Args: the fingerprints; the distance; the buckets to read, the same number for each fingerprint, or None to read
    /// the fingerprints' own buckets.
    fn near_many<'py>(
        &self,
        py: Python<'py>,
        fingerprints: PyReadonlyArray1<'py, u64>,
        distance: u32,
        buckets: Option<PyReadonlyArray1<'py, u64>>,
    ) -> PyResult<Option<Pairs<'py>>> {
        let (mapped, queries) = (self.mapped(py)?, fingerprints.as_slice()?);
        let buckets = buckets.as_ref().map(PyReadonlyArray1::as_slice).transpose()?;
        let (mut places, mut values) = (Vec::new(), Vec::new());
        let found = |place, value| {
            places.push(place as i64);
            values.push(value);
        };
        let done = py.detach(|| match buckets {
            None => {
                let own = queries.iter().enumerate().flat_map(|(place, &query)| mapped.own(place, query));
                mapped.near(queries, distance, own, found)
            }
            Some(buckets) => {
                let each = (buckets.len() / queries.len().max(1)).max(1);
                let reads = buckets.iter().enumerate().map(|(at, &number)| mapped.of_bucket(at / each, number));
                mapped.near(queries, distance, reads, found)
            }
        });
        let unread = match done {
            Ok(()) => Vec::new(),
            Err(Open::Unread(blocks)) => blocks,
            Err(Open::Wide) => return Ok(None),
        };
        Ok(Some((places.into_pyarray(py), values.into_pyarray(py), unread)))
    }
}
