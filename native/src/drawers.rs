//! Looks fingerprints up in the drawers of a base: `hsimhash.store.lmdb.base_file`.

use crate::prefetch::prefetch;
use numpy::{IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use std::ops::Range;

/// Queries that are looked up together: while one's rows come from memory, those of the others are asked for.
const TOGETHER: usize = 32;

/// Where the cells and the rows of a drawer begin, and how a cell's place comes from a fingerprint: which bits, moved.
#[derive(FromPyObject)]
struct Drawer {
    cells: usize,
    rows: usize,
    moves: Vec<(u32, u64)>,
}

impl Drawer {
    /// Returns the place of the cell with a fingerprint.
    #[inline]
    fn cell(&self, wide: u128) -> usize {
        self.moves.iter().fold(self.cells, |at, &(shift, mask)| at + ((wide >> shift) as u64 & mask) as usize)
    }
}

/// The arrays of a base.
#[derive(Clone, Copy)]
struct Mapped<'a> {
    drawers: &'a [Drawer],
    values: &'a [u64],
    directory: &'a [u32],
    /// By block, whether it was found to be whole.
    whole: &'a [u8],
    block_shift: u32,
    most_rows: usize,
}

/// What cannot be answered.
enum Open {
    /// A cell has many rows: only some of them are wanted.
    Wide,
    /// Blocks that nobody has verified.
    Unread(Vec<usize>),
}

impl Mapped<'_> {
    /// Returns the rows of a drawer's cell.
    #[inline]
    fn rows(&self, drawer: &Drawer, cell: usize) -> Range<usize> {
        drawer.rows + self.directory[cell] as usize..drawer.rows + self.directory[cell + 1] as usize
    }

    /// Calls `found` with the place of a query and each value within the distance.
    fn near(&self, queries: &[u64], distance: u32, mut found: impl FnMut(usize, u64)) -> Result<(), Open> {
        let mut unread = Vec::new();
        let mut cells = Vec::with_capacity(TOGETHER * self.drawers.len());
        for (number, some) in queries.chunks(TOGETHER).enumerate() {
            cells.clear();
            for &query in some {
                let wide = u128::from(query) << u32::BITS;
                for drawer in self.drawers {
                    let cell = drawer.cell(wide);
                    prefetch(self.directory, cell);
                    cells.push(cell);
                }
            }
            let by_query = || cells.chunks(self.drawers.len()).map(|cells| self.drawers.iter().zip(cells));
            for (drawer, &cell) in by_query().flatten() {
                prefetch(self.values, self.rows(drawer, cell).start);
            }
            for ((at, &query), cells) in some.iter().enumerate().zip(by_query()) {
                for (drawer, &cell) in cells {
                    let rows = self.rows(drawer, cell);
                    if rows.is_empty() {
                        continue;
                    }
                    if rows.len() > self.most_rows {
                        return Err(Open::Wide);
                    }
                    let blocks = rows.start >> self.block_shift..(rows.end - 1 >> self.block_shift) + 1;
                    let known = unread.len();
                    unread.extend(blocks.filter(|&block| self.whole[block] == 0));
                    if unread.len() > known {
                        continue;
                    }
                    for &value in &self.values[rows] {
                        if (value ^ query).count_ones() <= distance {
                            found(number * TOGETHER + at, value);
                        }
                    }
                }
            }
        }
        if unread.is_empty() { Ok(()) } else { Err(Open::Unread(unread)) }
    }
}

/// The drawers of a mapped base. Its methods return None where a cell has too many rows, and blocks to verify first.
#[pyclass(frozen)]
pub struct Drawers {
    drawers: Vec<Drawer>,
    values: Py<PyArray1<u64>>,
    directory: Py<PyArray1<u32>>,
    whole: Py<PyArray1<u8>>,
    block_shift: u32,
    most_rows: usize,
}

type Pairs<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u64>>, Vec<usize>);

impl Drawers {
    fn mapped<'a>(&'a self, py: Python<'a>) -> PyResult<Mapped<'a>> {
        // SAFETY: nobody writes to the first two. Of the third bytes go from 0 to 1: either is right to read.
        unsafe {
            Ok(Mapped {
                drawers: &self.drawers,
                values: self.values.bind(py).as_slice()?,
                directory: self.directory.bind(py).as_slice()?,
                whole: self.whole.bind(py).as_slice()?,
                block_shift: self.block_shift,
                most_rows: self.most_rows,
            })
        }
    }
}

#[pymethods]
impl Drawers {
    /// Args: each drawer's cells, rows and moves; all rows; the directory; which blocks are whole, and how many rows of
    /// a block the shift says; and the most rows of a cell.
    #[new]
    fn new(
        drawers: Vec<Drawer>,
        values: Py<PyArray1<u64>>,
        directory: Py<PyArray1<u32>>,
        whole: Py<PyArray1<u8>>,
        block_shift: u32,
        most_rows: usize,
    ) -> Self {
        Drawers { drawers, values, directory, whole, block_shift, most_rows }
    }

    /// Return the values within a distance of one fingerprint, and blocks to verify.
    fn near(&self, py: Python<'_>, fingerprint: u64, distance: u32) -> PyResult<Option<(Vec<u64>, Vec<usize>)>> {
        let mut found = Vec::new();
        Ok(match self.mapped(py)?.near(&[fingerprint], distance, |_, value| found.push(value)) {
            Ok(()) => Some((found, Vec::new())),
            Err(Open::Unread(blocks)) => Some((Vec::new(), blocks)),
            Err(Open::Wide) => None,
        })
    }

    /// Return the places of fingerprints and the values within a distance of each, and blocks to verify.
    fn near_many<'py>(
        &'py self,
        py: Python<'py>,
        fingerprints: PyReadonlyArray1<'py, u64>,
        distance: u32,
    ) -> PyResult<Option<Pairs<'py>>> {
        let (mapped, queries) = (self.mapped(py)?, fingerprints.as_slice()?);
        let (mut places, mut values) = (Vec::new(), Vec::new());
        let done = py.detach(|| {
            mapped.near(queries, distance, |place, value| {
                places.push(place as i64);
                values.push(value);
            })
        });
        let unread = match done {
            Ok(()) => Vec::new(),
            Err(Open::Unread(blocks)) => blocks,
            Err(Open::Wide) => return Ok(None),
        };
        Ok(Some((places.into_pyarray(py), values.into_pyarray(py), unread)))
    }
}
