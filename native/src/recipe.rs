//! Reads a recipe and its tables from Python.

use crate::normalize::{self, Given};
use crate::rarity::Rarities;
use crate::sketch::Lenders;
use crate::table::WordTable;
use crate::text::{English, Recipe, Weights};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use std::sync::OnceLock;

/// Fields of `hsimhash.fingerprint.recipe.Recipe`.
#[derive(FromPyObject)]
pub struct Rules {
    tokens: String,
    han: Option<String>,
    n: usize,
    char_n: usize,
    word_unit: u64,
    char_unit: u64,
    cap: Option<u64>,
    min_features: usize,
    seed: u64,
    tie: String,
    sketch: Option<usize>,
    key: Option<usize>,
    keying: String,
}

/// Ascending hashes of words, a weight for each, and the weight of all other words.
#[derive(FromPyObject)]
struct Words<'py> {
    hashes: PyReadonlyArray1<'py, u64>,
    weights: PyReadonlyArray1<'py, f64>,
    median: f64,
    most_common: f64,
}

/// Ascending tags of features, the rarity of each, and the rarity of all other features.
#[derive(FromPyObject)]
struct RarityTable<'py> {
    tags: PyReadonlyArray1<'py, u32>,
    rarities: PyReadonlyArray1<'py, u8>,
    default: u8,
}

/// The tables that the recipe needs; `None` for those that it does not use.
#[derive(FromPyObject)]
pub struct Tables<'py> {
    classes: PyReadonlyArray1<'py, u8>,
    normal: PyReadonlyArray1<'py, u32>,
    many_start: PyReadonlyArray1<'py, i64>,
    many_codes: PyReadonlyArray1<'py, u32>,
    hyphened: PyReadonlyArray1<'py, u8>,
    is_layout_free: bool,
    simplified: Option<PyReadonlyArray1<'py, u32>>,
    marks: Vec<(u8, u8)>,
    rarity: Option<RarityTable<'py>>,
    english: Option<Words<'py>>,
    /// Returns jieba's dictionary and the content of its idf.txt.
    pub chinese: Py<PyAny>,
}

fn weights(tables: &Tables<'_>) -> PyResult<Weights> {
    if let Some(table) = &tables.rarity {
        let rarities = Rarities::new(table.tags.as_slice()?, table.rarities.as_slice()?, table.default);
        return Ok(Weights::Rarity(rarities));
    }
    let Some(table) = &tables.english else { return Ok(Weights::Count { english: None }) };
    let listed = table.hashes.as_slice()?.iter().copied().zip(table.weights.as_slice()?.iter().copied());
    let words = WordTable::new(listed.collect(), table.median);
    Ok(Weights::Count { english: Some(English { words, most_common: table.most_common }) })
}

/// Returns the recipe with its tables.
pub fn recipe(rules: Rules, tables: &Tables<'_>) -> PyResult<Recipe> {
    let weights = weights(tables)?;
    let given = Given {
        classes: tables.classes.as_slice()?.to_vec(),
        normal: tables.normal.as_slice()?.to_vec(),
        many_start: tables.many_start.as_slice()?.to_vec(),
        many_codes: tables.many_codes.as_slice()?.to_vec(),
        hyphened: tables.hyphened.as_slice()?.to_vec(),
        is_layout_free: tables.is_layout_free,
        simplified: tables.simplified.as_ref().map(|one| one.as_slice().map(<[u32]>::to_vec)).transpose()?,
        marks: tables.marks.clone(),
    };
    Ok(Recipe {
        tables: normalize::Tables::new(given),
        weights,
        chinese: OnceLock::new(),
        lenders: Lenders::new(),
        is_of_words: rules.tokens == "words",
        knows_japanese: rules.han.as_deref() == Some("simplified-2"),
        n: rules.n,
        char_n: rules.char_n,
        word_unit: rules.word_unit,
        char_unit: rules.char_unit,
        cap: rules.cap,
        min_features: rules.min_features,
        seed: rules.seed,
        tie_gives_one: rules.tie == "one",
        sketch: rules.sketch,
        key: rules.key,
        is_key_in_parts: rules.keying == "in-parts",
    })
}
