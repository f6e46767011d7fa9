//! The embedding model: a vector for every word piece, summed up to a vector for a text.
//!
//! Compiled into the executable (see `model/README.md` for its provenance). Invariant: it is not read before the first
//! text is embedded, because most commands never need it; it is never modified.

use std::sync::LazyLock;

mod word_pieces;

use word_pieces::WordPieces;

/// The model file: a JSON header, a scale per word piece, a row of bytes per word piece.
const FILE: &[u8] = include_bytes!("../model/model.safetensors");

/// Dimensions of an embedding.
pub(crate) const WIDTH: usize = 256;

/// Maximum number of word pieces per text.
const MAX_PIECES: usize = 512;

static MODEL: LazyLock<EmbeddingModel> = LazyLock::new(EmbeddingModel::read);

struct EmbeddingModel {
    pieces: WordPieces,
    scales: &'static [u8],
    rows: &'static [u8],
}

/// The meaning of a text as a direction. Quantised to bytes: a quarter of the memory, and the same ranking.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Embedding {
    numbers: [i8; WIDTH],
    length: f32,
}

impl Embedding {
    /// Embeds a text. Returns `None` if the model knows none of its word pieces.
    pub(crate) fn embed(text: &str) -> Option<Self> {
        let model = &*MODEL;
        let mut sum = [0.0_f32; WIDTH];
        let mut pieces = 0;
        model.pieces.for_each_piece(text, |piece| {
            pieces += 1;
            model.add(piece, &mut sum);
            pieces < MAX_PIECES
        });
        Self::quantise(&sum)
    }

    /// Computes the weighted mean direction of several texts.
    pub(crate) fn weighted_mean(parts: &[(f32, &str)]) -> Option<Self> {
        let mut sum = [0.0; WIDTH];
        for (weight, text) in parts {
            if let Some(vector) = Self::embed(text) {
                vector.add_to(&mut sum, *weight);
            }
        }
        Self::quantise(&sum)
    }

    /// Computes the direction from one group of texts to another.
    pub(crate) fn direction_between<'a>(
        from: impl Iterator<Item = &'a str>,
        to: impl Iterator<Item = &'a str>,
    ) -> Option<Self> {
        let mut sum = [0.0; WIDTH];
        for (texts, sign) in [(from.collect::<Vec<_>>(), -1.0), (to.collect(), 1.0)] {
            let weight = sign / texts.len().max(1) as f32;
            texts.into_iter().filter_map(Self::embed).for_each(|vector| vector.add_to(&mut sum, weight));
        }
        Self::quantise(&sum)
    }

    fn add_to(&self, sum: &mut [f32; WIDTH], weight: f32) {
        for (sum, number) in sum.iter_mut().zip(&self.numbers) {
            *sum += weight * f32::from(*number) / self.length;
        }
    }

    fn quantise(sum: &[f32; WIDTH]) -> Option<Self> {
        let largest = sum.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
        let numbers = sum.map(|number| (number / largest * 127.0).round() as i8);
        let length = (product(&numbers, &numbers) as f32).sqrt();
        (length > 0.0).then_some(Self { numbers, length })
    }

    /// Returns the cosine similarity.
    pub(crate) fn cosine(&self, other: &Self) -> f32 {
        product(&self.numbers, &other.numbers) as f32 / (self.length * other.length)
    }
}

fn product(one: &[i8; WIDTH], other: &[i8; WIDTH]) -> i32 {
    one.iter().zip(other).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

impl EmbeddingModel {
    fn read() -> Self {
        let (length, rest) = FILE.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("it is eight bytes"));
        let numbers = &rest[usize::try_from(length).expect("the header is short")..];
        let pieces = WordPieces::read();
        let (scales, rows) = numbers.split_at(pieces.count() * size_of::<f32>());
        assert_eq!(rows.len(), pieces.count() * WIDTH, "the model and its vocabulary belong together");
        Self { pieces, scales, rows }
    }

    fn add(&self, piece: usize, sum: &mut [f32; WIDTH]) {
        let scale = self.scales[piece * 4..][..4].try_into().expect("it is four bytes");
        let scale = f32::from_le_bytes(scale);
        let row = &self.rows[piece * WIDTH..][..WIDTH];
        for (sum, number) in sum.iter_mut().zip(row) {
            *sum += scale * f32::from(number.cast_signed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn cosine(one: &str, other: &str) -> f32 {
        Embedding::embed(one).unwrap().cosine(&Embedding::embed(other).unwrap())
    }

    #[test]
    fn similar_texts_have_similar_embeddings() {
        assert!((cosine("read a file", "read a file") - 1.0).abs() < 1e-6);
        assert!(
            cosine("delete the folder", "remove a directory") > cosine("delete the folder", "play a song")
        );
        assert!(cosine("weather in Oslo", "forecast of rain") > cosine("weather in Oslo", "send an email"));
        assert_eq!(Embedding::embed(""), None);
        assert_eq!(Embedding::embed(" \u{0} "), None);
    }

    /// Compares with sums in full precision.
    #[test]
    fn quantisation_changes_little() {
        let exact = |text: &str| {
            let mut sum = [0.0; WIDTH];
            MODEL.pieces.for_each_piece(text, |piece| {
                MODEL.add(piece, &mut sum);
                true
            });
            sum
        };
        let (one, other) =
            (exact("find flights to Paris"), exact("Search for airline tickets between two cities"));
        let product = |a: &[f32; WIDTH], b: &[f32; WIDTH]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let cosine = product(&one, &other) / (product(&one, &one) * product(&other, &other)).sqrt();
        let quantised = Embedding::quantise(&one).unwrap().cosine(&Embedding::quantise(&other).unwrap());
        assert!((cosine - quantised).abs() < 0.01, "{cosine} {quantised}");
    }

    #[test]
    fn long_text_is_truncated() {
        let begin = "read a file ".repeat(MAX_PIECES);
        assert_eq!(Embedding::embed(&begin), Embedding::embed(&format!("{begin} play a song")));
    }
}
