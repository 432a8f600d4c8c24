//! Random choices from the bytes of an input, and what is made of them: request bodies of any API
//! and version by their descriptions, and damage.

use ringlog::wire::shape::{Kind, Shape, Structure};

/// Reads choices off an input; at its end the same ones come again, changed.
pub struct Choices<'a> {
    input: &'a [u8],
    at: usize,
    state: u64,
}

impl<'a> Choices<'a> {
    pub fn new(input: &'a [u8]) -> Choices<'a> {
        Choices { input, at: 0, state: 0x9E37_79B9_7F4A_7C15 }
    }

    pub fn byte(&mut self) -> u8 {
        let byte = self.input.get(self.at).copied();
        self.at += 1;
        byte.unwrap_or_else(|| {
            self.state ^= self.state << 13 ^ self.at as u64;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            (self.state >> 32) as u8
        })
    }

    pub fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    pub fn below(&mut self, bound: usize) -> usize {
        if bound <= 256 {
            usize::from(self.byte()) % bound.max(1)
        } else {
            (self.number() % bound as u64) as usize
        }
    }

    pub fn chance(&mut self, one_in: u8) -> bool {
        self.byte().is_multiple_of(one_in)
    }

    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.byte()).collect()
    }

    /// All that is left of the input.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.input.get(self.at..).unwrap_or(&[]);
        self.at = self.input.len();
        rest
    }

    /// A number that is often near an edge.
    pub fn edge(&mut self) -> i64 {
        const EDGES: [i64; 10] = [
            0,
            1,
            -1,
            2,
            i32::MAX as i64,
            i32::MIN as i64,
            i64::MAX,
            i64::MIN,
            i16::MAX as i64,
            255,
        ];
        match self.byte() {
            choice @ 0..=199 => EDGES[usize::from(choice) % EDGES.len()],
            _ => self.number().cast_signed(),
        }
    }

    /// Changes, cuts, doubles or puts in a few bytes.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                return;
            }
            let place = self.below(bytes.len());
            match self.byte() % 8 {
                0 => bytes.truncate(place),
                1 => {
                    bytes.remove(place);
                }
                2 => bytes.insert(place, self.byte()),
                3 => {
                    let edge = self.edge().to_be_bytes();
                    let width = [1, 2, 4, 8][self.below(4)];
                    for (to, from) in bytes[place..].iter_mut().zip(&edge[8 - width..]) {
                        *to = *from;
                    }
                }
                4 => {
                    let piece = bytes[place..].iter().take(16).copied().collect::<Vec<u8>>();
                    bytes.extend(piece);
                }
                5 => bytes[place] ^= 1 << (self.byte() % 8),
                _ => bytes[place] = self.byte(),
            }
        }
    }
}

/// A body that fits its description.
pub fn body(shape: &Shape, version: i16, choices: &mut Choices<'_>) -> Vec<u8> {
    let flexible = version >= shape.flexible_from;
    let mut maker = Maker { choices, version, flexible, elements_left: 12, out: Vec::new() };
    maker.structure(&shape.body);
    maker.out
}

struct Maker<'a, 'b> {
    choices: &'a mut Choices<'b>,
    version: i16,
    flexible: bool,
    elements_left: usize,
    out: Vec<u8>,
}

impl Maker<'_, '_> {
    fn structure(&mut self, structure: &Structure) {
        let version = self.version;
        for field in structure.fields.iter().filter(|field| field.is_present(version)) {
            self.value(&field.kind(), field.is_nullable(self.version), true);
        }
        if self.flexible {
            self.tags(structure);
        }
    }

    fn tags(&mut self, structure: &Structure) {
        let mut tags: Vec<(u32, Vec<u8>)> = Vec::new();
        for tag in structure.tags {
            if tag.field().is_present(self.version) && self.choices.chance(3) {
                let outer = std::mem::take(&mut self.out);
                self.value(&tag.field().kind(), tag.field().is_nullable(self.version), true);
                tags.push((tag.number(), std::mem::replace(&mut self.out, outer)));
            }
        }
        if self.choices.chance(8) {
            tags.push((100 + u32::from(self.choices.byte()), self.choices.bytes(6)));
        }
        self.uvarint(tags.len() as u64);
        for (number, content) in tags {
            self.uvarint(u64::from(number));
            self.uvarint(content.len() as u64);
            self.out.extend(content);
        }
    }

    fn value(&mut self, kind: &Kind, nullable: bool, is_field: bool) {
        let is_null = nullable && self.choices.chance(4);
        match kind {
            Kind::Fixed(size) => {
                let number = self.choices.edge().to_be_bytes();
                for place in 0..*size {
                    self.out.push(number[8 - (size - place).min(8)]);
                }
            }
            Kind::Nested(structure) => {
                if nullable && is_field {
                    self.out.push(if is_null { 0xff } else { 1 });
                }
                if !is_null {
                    self.structure(structure);
                }
            }
            Kind::Text => {
                let text: Vec<u8> =
                    self.choices.bytes(9).into_iter().map(|byte| b'a' + byte % 26).collect();
                self.length(if is_null { None } else { Some(text.len()) }, true);
                if !is_null {
                    self.out.extend(text);
                }
            }
            Kind::Blob => {
                let bytes = self.choices.bytes(20);
                self.length(if is_null { None } else { Some(bytes.len()) }, false);
                if !is_null {
                    self.out.extend(bytes);
                }
            }
            Kind::Array(element) => {
                let count = self.choices.below(4).min(self.elements_left);
                self.elements_left -= count;
                self.length(if is_null { None } else { Some(count) }, false);
                if !is_null {
                    for _ in 0..count {
                        self.value(element, false, false);
                    }
                }
            }
        }
    }

    fn length(&mut self, length: Option<usize>, is_text: bool) {
        match (self.flexible, length) {
            (true, length) => self.uvarint(length.map_or(0, |length| length as u64 + 1)),
            (false, None) if is_text => self.out.extend([0xff; 2]),
            (false, None) => self.out.extend([0xff; 4]),
            (false, Some(length)) if is_text => self.out.extend((length as u16).to_be_bytes()),
            (false, Some(length)) => self.out.extend((length as u32).to_be_bytes()),
        }
    }

    fn uvarint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }
}
