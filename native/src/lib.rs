//! Computes hsimhash signatures in one pass over each text, bit-identical to those of the Python package, and looks up
//! fingerprints in the drawers of an embedded index.

mod counter;
mod drawers;
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
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyString;
use std::sync::Arc;
use text::{Features, Recipe, Scratch, Signature, Text};

const INTERFACE: u32 = 7; // change this whenever arguments or results of functions change
const MAYBE_HAN: u32 = 0x2E80; // no code point below this is Han or normalises to Han

type Columns<'py> =
    (Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u8>>);

/// Jieba's dictionary, shared by all signers with the same seed.
#[pyclass(frozen)]
struct Dictionary(Arc<segment::Dictionary>);

#[pymethods]
impl Dictionary {
    /// Args: the content of jieba's dict.txt; the seed of hashes.
    #[new]
    fn new(py: Python<'_>, content: &[u8], seed: u64) -> PyResult<Self> {
        let lines = std::str::from_utf8(content).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Dictionary(py.detach(|| Arc::new(segment::Dictionary::new(lines, seed)))))
    }
}

/// Computes signatures for a profile.
#[pyclass(frozen)]
struct Signer {
    recipe: Recipe,
    chinese: Py<PyAny>,
}

impl Signer {
    /// Loads the dictionary the first time that a text may need it.
    fn prepare(&self, py: Python<'_>, mut needs: impl FnMut() -> bool) -> PyResult<()> {
        if self.recipe.is_of_words || self.recipe.chinese.get().is_some() || !needs() {
            return Ok(());
        }
        let (dictionary, idf): (Bound<'_, Dictionary>, String) = self.chinese.bind(py).call0()?.extract()?;
        let words = &dictionary.get().0;
        py.detach(|| self.recipe.take_chinese(words.clone(), &idf));
        Ok(())
    }

    /// Runs `each` on the texts, and returns the results in order.
    fn of_texts<T: Send>(
        &self,
        py: Python<'_>,
        texts: &[Bound<'_, PyString>],
        each: impl Fn(&Recipe, Text<'_>, &mut Scratch) -> T + Sync,
    ) -> PyResult<Vec<T>> {
        let texts = texts.iter().map(Utf8::of).collect::<PyResult<Vec<_>>>()?;
        self.prepare(py, || texts.iter().any(|text| may_have_han(text.as_str())))?;
        Ok(py.detach(|| {
            let mut scratch = Scratch::default();
            texts.iter().map(|text| each(&self.recipe, Text::Given(text.as_str()), &mut scratch)).collect()
        }))
    }

    /// Like `of_texts`, for normalised texts given as code points: text i ends at `ends[i]`, where a separator follows.
    fn of_codes<T: Send>(
        &self,
        py: Python<'_>,
        codes: &[u32],
        ends: &[i64],
        each: impl Fn(&Recipe, Text<'_>, &mut Scratch) -> T + Sync,
    ) -> PyResult<Vec<T>> {
        self.prepare(py, || codes.iter().any(|&code| code >= MAYBE_HAN))?;
        Ok(py.detach(|| {
            let (mut scratch, mut start) = (Scratch::default(), 0);
            let texts = ends.iter().map(|&end| {
                let text = &codes[start..end as usize];
                start = end as usize + 1;
                text
            });
            texts.map(|text| each(&self.recipe, Text::Normal(text), &mut scratch)).collect()
        }))
    }
}

/// The UTF-8 of a text. `PyString::to_str` would keep it in the Python object, and double the memory of Chinese texts.
struct Utf8(PyBackedBytes);

impl Utf8 {
    fn of(text: &Bound<'_, PyString>) -> PyResult<Self> {
        Ok(Utf8(text.encode_utf8()?.into()))
    }

    fn as_str(&self) -> &str {
        // SAFETY: Python encoded these bytes as UTF-8.
        unsafe { std::str::from_utf8_unchecked(&self.0) }
    }
}

fn may_have_han(text: &str) -> bool {
    text.bytes().any(|byte| byte >= 0xE2) && text.chars().any(|one| u32::from(one) >= MAYBE_HAN)
}

/// Hashes of all texts, the end of each text's hashes, keys, sketches, and whether each text was read (0 or 1).
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

#[pymethods]
impl Signer {
    /// Args: a `hsimhash.fingerprint.recipe.Recipe`, and the `_SignerTables` of `hsimhash.fingerprint.native`.
    #[new]
    fn new(recipe: recipe::Rules, tables: recipe::Tables<'_>) -> PyResult<Self> {
        let recipe = recipe::recipe(recipe, &tables)?;
        Ok(Signer { recipe, chinese: tables.chinese })
    }

    /// Return fingerprints, sketches, keys and kinds of texts; kind 3 means that the caller has to normalise the text.
    fn signatures<'py>(&self, py: Python<'py>, texts: Vec<Bound<'py, PyString>>) -> PyResult<Columns<'py>> {
        Ok(columns(py, self.of_texts(py, &texts, Recipe::signature)?))
    }

    /// Like `signatures`, but for normalised texts; see `of_codes`.
    fn signatures_of_codes<'py>(
        &self,
        py: Python<'py>,
        codes: PyReadonlyArray1<'py, u32>,
        ends: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<Columns<'py>> {
        Ok(columns(py, self.of_codes(py, codes.as_slice()?, ends.as_slice()?, Recipe::signature)?))
    }

    /// Return the shingles of texts as `FeatureColumns` without keys and sketches.
    fn shingles<'py>(&self, py: Python<'py>, texts: Vec<Bound<'py, PyString>>) -> PyResult<FeatureColumns<'py>> {
        Ok(feature_columns(py, self.of_texts(py, &texts, Recipe::shingles)?))
    }

    /// Like `shingles`, but for normalised texts; see `of_codes`.
    fn shingles_of_codes<'py>(
        &self,
        py: Python<'py>,
        codes: PyReadonlyArray1<'py, u32>,
        ends: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<FeatureColumns<'py>> {
        Ok(feature_columns(py, self.of_codes(py, codes.as_slice()?, ends.as_slice()?, Recipe::shingles)?))
    }

    /// Return the features of texts, for fitting a rarity table; see `FeatureColumns`.
    fn features<'py>(&self, py: Python<'py>, texts: Vec<Bound<'py, PyString>>) -> PyResult<FeatureColumns<'py>> {
        Ok(feature_columns(py, self.of_texts(py, &texts, Recipe::features)?))
    }

    /// Like `features`, but for normalised texts; see `of_codes`.
    fn features_of_codes<'py>(
        &self,
        py: Python<'py>,
        codes: PyReadonlyArray1<'py, u32>,
        ends: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<FeatureColumns<'py>> {
        Ok(feature_columns(py, self.of_codes(py, codes.as_slice()?, ends.as_slice()?, Recipe::features)?))
    }
}

#[pymodule]
fn hsimhash_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<Dictionary>()?;
    module.add_class::<Signer>()?;
    module.add_class::<drawers::Drawers>()
}
