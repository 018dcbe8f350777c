//! Signatures of hsimhash in one pass over each text, equal to the bit to those of the Python package.

mod counter;
mod hash;
mod normalize;
mod page;
mod prefetch;
mod rarity;
mod recipe;
mod segment;
mod sketch;
mod table;
mod text;
mod units;
mod vote;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use text::{Features, Recipe, Scratch, Signature};

const INTERFACE: u32 = 2; // another number wherever functions take or return something else
const TEXTS_AT_ONCE: usize = 16;
const FIRST_HAN: u32 = 0x2E80; // or a character that becomes Han

type Columns<'py> =
    (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u8>>);

/// Makes the signatures of a profile.
#[pyclass(frozen)]
struct Signer {
    recipe: Recipe,
    chinese: Py<PyAny>,
}

impl Signer {
    /// Reads the dictionary if a text may need it, the first time.
    fn prepare(&self, py: Python<'_>, mut needs: impl FnMut() -> bool) -> PyResult<()> {
        if self.recipe.is_of_words || self.recipe.chinese.get().is_some() || !needs() {
            return Ok(());
        }
        let (dictionary, idf): (String, String) = self.chinese.bind(py).call0()?.extract()?;
        py.detach(|| self.recipe.read_chinese(&dictionary, &idf));
        Ok(())
    }
}

fn may_have_han(text: &str) -> bool {
    text.bytes().any(|byte| byte >= 0xE2) && text.chars().any(|one| u32::from(one) >= FIRST_HAN)
}

/// Returns what `each` makes of the numbers below `count`, in order.
fn spread<T: Send>(count: usize, threads: usize, each: impl Fn(usize, &mut Scratch) -> T + Sync) -> Vec<T> {
    let work = |range: std::ops::Range<usize>, scratch: &mut Scratch| -> Vec<T> {
        range.map(|number| each(number, scratch)).collect()
    };
    if threads < 2 || count <= TEXTS_AT_ONCE {
        return work(0..count, &mut Scratch::default());
    }
    let next = AtomicUsize::new(0);
    let run = || {
        let (mut found, mut scratch) = (Vec::new(), Scratch::default());
        loop {
            let start = next.fetch_add(TEXTS_AT_ONCE, Ordering::Relaxed);
            if start >= count {
                return found;
            }
            found.push((start, work(start..count.min(start + TEXTS_AT_ONCE), &mut scratch)));
        }
    };
    let mut parts = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        running.into_iter().flat_map(|one| one.join().expect("a thread that signs texts")).collect::<Vec<_>>()
    });
    parts.sort_unstable_by_key(|part| part.0);
    parts.into_iter().flat_map(|part| part.1).collect()
}

/// Hashes of all texts, where those of each end, keys, sketches, and 0 for each text that was not read.
type FeatureColumns<'py> = (
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u8>>,
);

fn columns(py: Python<'_>, found: Vec<Signature>) -> Columns<'_> {
    (
        found.iter().map(|one| one.fingerprint).collect::<Vec<_>>().into_pyarray(py),
        found.iter().map(|one| one.sketch).collect::<Vec<_>>().into_pyarray(py),
        found.iter().map(|one| one.key).collect::<Vec<_>>().into_pyarray(py),
        found.iter().map(|one| one.kind).collect::<Vec<_>>().into_pyarray(py),
    )
}

fn feature_columns(py: Python<'_>, found: Vec<Option<Features>>) -> FeatureColumns<'_> {
    let is_read: Vec<u8> = found.iter().map(|one| one.is_some().into()).collect();
    let found: Vec<_> = found.into_iter().map(Option::unwrap_or_default).collect();
    let mut end = 0;
    let ends = found.iter().map(|one| {
        end += one.hashes.len() as i64;
        end
    });
    (
        found.iter().flat_map(|one| one.hashes.iter().copied()).collect::<Vec<_>>().into_pyarray(py),
        ends.collect::<Vec<_>>().into_pyarray(py),
        found.iter().map(|one| one.key).collect::<Vec<_>>().into_pyarray(py),
        found.iter().map(|one| one.sketch).collect::<Vec<_>>().into_pyarray(py),
        is_read.into_pyarray(py),
    )
}

/// Returns one of the texts whose code points stand one after the other.
fn text_at<'a>(codes: &'a [u32], ends: &[i64], number: usize) -> &'a [u32] {
    let start = if number == 0 { 0 } else { ends[number - 1] as usize + 1 };
    &codes[start..ends[number] as usize]
}

#[pymethods]
impl Signer {
    /// Args: a `hsimhash.fingerprint.recipe.Recipe`, and the `Tables` of `hsimhash.fingerprint.native`.
    #[new]
    fn new(recipe: recipe::Rules, tables: recipe::Tables<'_>) -> PyResult<Self> {
        let recipe = recipe::recipe(recipe, &tables)?;
        Ok(Signer { recipe, chinese: tables.chinese })
    }

    /// Return fingerprints, sketches, keys and kinds of texts; the kind 3 is of those that the caller has to normalise.
    #[pyo3(signature = (texts, threads = 1))]
    fn signatures<'py>(&self, py: Python<'py>, texts: Vec<PyBackedStr>, threads: usize) -> PyResult<Columns<'py>> {
        self.prepare(py, || texts.iter().any(|text| may_have_han(text)))?;
        let found =
            py.detach(|| spread(texts.len(), threads, |number, scratch| self.recipe.of_text(&texts[number], scratch)));
        Ok(columns(py, found))
    }

    /// Return what a rarity table is fitted to; see `FeatureColumns`.
    #[pyo3(signature = (texts, threads = 1))]
    fn features<'py>(&self, py: Python<'py>, texts: Vec<PyBackedStr>, threads: usize) -> PyResult<FeatureColumns<'py>> {
        self.prepare(py, || texts.iter().any(|text| may_have_han(text)))?;
        let found =
            py.detach(|| spread(texts.len(), threads, |number, scratch| self.recipe.features(&texts[number], scratch)));
        Ok(feature_columns(py, found))
    }

    /// Return the signatures of normalised texts: code points, of which each text's end where `ends` says; one is between.
    #[pyo3(signature = (codes, ends, threads = 1))]
    fn signatures_of_codes<'py>(
        &self,
        py: Python<'py>,
        codes: PyReadonlyArray1<'py, u32>,
        ends: PyReadonlyArray1<'py, i64>,
        threads: usize,
    ) -> PyResult<Columns<'py>> {
        let (codes, ends) = (codes.as_slice()?, ends.as_slice()?);
        self.prepare(py, || codes.iter().any(|&code| code >= FIRST_HAN))?;
        let found = py.detach(|| {
            spread(ends.len(), threads, |number, scratch| self.recipe.of_codes(text_at(codes, ends, number), scratch))
        });
        Ok(columns(py, found))
    }

    /// Return what a rarity table is fitted to, of normalised texts.
    #[pyo3(signature = (codes, ends, threads = 1))]
    fn features_of_codes<'py>(
        &self,
        py: Python<'py>,
        codes: PyReadonlyArray1<'py, u32>,
        ends: PyReadonlyArray1<'py, i64>,
        threads: usize,
    ) -> PyResult<FeatureColumns<'py>> {
        let (codes, ends) = (codes.as_slice()?, ends.as_slice()?);
        self.prepare(py, || codes.iter().any(|&code| code >= FIRST_HAN))?;
        let found = py.detach(|| {
            spread(ends.len(), threads, |number, scratch| {
                self.recipe.features_of_codes(text_at(codes, ends, number), scratch)
            })
        });
        Ok(feature_columns(py, found))
    }
}

#[pymodule]
fn hsimhash_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<Signer>()
}
