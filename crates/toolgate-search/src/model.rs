//! The model: a vector for every piece of a word, and from these a vector for a text.
//!
//! It stands in the executable as it was made (`model/README.md` says how). Invariant: nothing of it is read
//! before the first text, since most commands never ask; after that it is only read.

use std::sync::LazyLock;

mod pieces;

use pieces::Pieces;

/// The model as it was written: a header of JSON, a scale for every piece, a row of bytes for every piece.
const FILE: &[u8] = include_bytes!("../model/model.safetensors");

/// Numbers of a vector.
pub(crate) const WIDTH: usize = 256;

/// Pieces of one text that count.
const MOST_PIECES: usize = 512;

static MODEL: LazyLock<Model> = LazyLock::new(Model::read);

struct Model {
    pieces: Pieces,
    scales: &'static [u8],
    rows: &'static [u8],
}

/// What a text means, as a direction. Rounded to bytes: a quarter of the memory, and the same order of results.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Vector {
    numbers: [i8; WIDTH],
    length: f32,
}

impl Vector {
    /// The direction of a text; `None` for one of which the model knows no piece.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let model = &*MODEL;
        let mut sum = [0.0_f32; WIDTH];
        let mut pieces = 0;
        model.pieces.each(text, |piece| {
            pieces += 1;
            model.add(piece, &mut sum);
            pieces < MOST_PIECES
        });
        Self::rounded(&sum)
    }

    /// The direction between those of some texts, each with its weight.
    pub(crate) fn between(parts: &[(f32, &str)]) -> Option<Self> {
        let mut sum = [0.0; WIDTH];
        for (weight, text) in parts {
            if let Some(vector) = Self::of(text) {
                vector.add_to(&mut sum, *weight);
            }
        }
        Self::rounded(&sum)
    }

    /// The direction that leads from one kind of texts to another.
    pub(crate) fn from_to<'a>(
        from: impl Iterator<Item = &'a str>,
        to: impl Iterator<Item = &'a str>,
    ) -> Option<Self> {
        let mut sum = [0.0; WIDTH];
        for (texts, sign) in [(from.collect::<Vec<_>>(), -1.0), (to.collect(), 1.0)] {
            let weight = sign / texts.len().max(1) as f32;
            texts.into_iter().filter_map(Self::of).for_each(|vector| vector.add_to(&mut sum, weight));
        }
        Self::rounded(&sum)
    }

    fn add_to(&self, sum: &mut [f32; WIDTH], weight: f32) {
        for (sum, number) in sum.iter_mut().zip(&self.numbers) {
            *sum += weight * f32::from(*number) / self.length;
        }
    }

    fn rounded(sum: &[f32; WIDTH]) -> Option<Self> {
        let largest = sum.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
        let numbers = sum.map(|number| (number / largest * 127.0).round() as i8);
        let length = (product(&numbers, &numbers) as f32).sqrt();
        (length > 0.0).then_some(Self { numbers, length })
    }

    /// How near two directions are: the cosine between them.
    pub(crate) fn nearness(&self, other: &Self) -> f32 {
        product(&self.numbers, &other.numbers) as f32 / (self.length * other.length)
    }
}

fn product(one: &[i8; WIDTH], other: &[i8; WIDTH]) -> i32 {
    one.iter().zip(other).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

impl Model {
    fn read() -> Self {
        let (length, rest) = FILE.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("it is eight bytes"));
        let numbers = &rest[usize::try_from(length).expect("the header is short")..];
        let pieces = Pieces::read();
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
    fn nearness(one: &str, other: &str) -> f32 {
        Vector::of(one).unwrap().nearness(&Vector::of(other).unwrap())
    }

    #[test]
    fn what_means_the_same_is_near() {
        assert!((nearness("read a file", "read a file") - 1.0).abs() < 1e-6);
        assert!(
            nearness("delete the folder", "remove a directory")
                > nearness("delete the folder", "play a song")
        );
        assert!(
            nearness("weather in Oslo", "forecast of rain") > nearness("weather in Oslo", "send an email")
        );
        assert_eq!(Vector::of(""), None);
        assert_eq!(Vector::of(" \u{0} "), None);
    }

    /// Sums of rows in full precision: what is rounded comes near enough.
    #[test]
    fn rounding_changes_little() {
        let exact = |text: &str| {
            let mut sum = [0.0; WIDTH];
            MODEL.pieces.each(text, |piece| {
                MODEL.add(piece, &mut sum);
                true
            });
            sum
        };
        let (one, other) =
            (exact("find flights to Paris"), exact("Search for airline tickets between two cities"));
        let product = |a: &[f32; WIDTH], b: &[f32; WIDTH]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let cosine = product(&one, &other) / (product(&one, &one) * product(&other, &other)).sqrt();
        let rounded = Vector::rounded(&one).unwrap().nearness(&Vector::rounded(&other).unwrap());
        assert!((cosine - rounded).abs() < 0.01, "{cosine} {rounded}");
    }

    #[test]
    fn a_long_text_is_read_in_part() {
        let begin = "read a file ".repeat(MOST_PIECES);
        assert_eq!(Vector::of(&begin), Vector::of(&format!("{begin} play a song")));
    }
}
