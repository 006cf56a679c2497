//! Reading numbers out of a program's type information (BTF).
//!
//! libxdp stores a number as the length of an array type to which a variable in a named section points.

use crate::errno::{Errno, Result};

const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const VAR: u32 = 14;
const DATASEC: u32 = 15;

/// The number that variable `name` in section `section` stands for; `None`: there is no such variable.
///
/// EINVAL: not BTF, or damaged; nothing outside `btf` is read whatever it says.
pub(super) fn metadata_number(btf: &[u8], section: &str, name: &str) -> Result<Option<u32>> {
    let types = Types::parse(btf)?;
    for data in types.of_kind(DATASEC).filter(|t| types.name(t) == Some(section)) {
        for variable in data.extra.chunks_exact(3).filter_map(|m| types.get(m[0])) {
            if variable.kind == VAR && types.name(variable) == Some(name) {
                return Ok(types.array_length(variable.target));
            }
        }
    }
    Ok(None)
}

struct Type {
    name: u32,
    kind: u32,
    /// The third word: a size or another type's number.
    target: u32,
    /// The words that follow, as many as the kind has.
    extra: Vec<u32>,
}

struct Types<'a> {
    types: Vec<Type>,
    strings: &'a [u8],
}

impl<'a> Types<'a> {
    fn parse(btf: &'a [u8]) -> Result<Types<'a>> {
        let word = |at: usize| {
            let bytes = btf.get(at..at.checked_add(4)?)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let part = |offset: usize, len: usize| {
            let start = (word(4)? as usize).checked_add(word(offset)? as usize)?;
            btf.get(start..start.checked_add(word(len)? as usize)?)
        };
        let magic = btf.get(..2).ok_or(Errno::EINVAL)?;
        if magic != 0xeb9fu16.to_ne_bytes() {
            return Err(Errno::EINVAL);
        }
        let types = part(8, 12).ok_or(Errno::EINVAL)?;
        let strings = part(16, 20).ok_or(Errno::EINVAL)?;
        let (words, _) = types.as_chunks::<4>();
        let mut words = words.iter().map(|w| u32::from_ne_bytes(*w));
        let mut list = Vec::new();
        while let (Some(name), Some(info), Some(target)) = (words.next(), words.next(), words.next()) {
            let (kind, members) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let count = match kind {
                1 | VAR | 17 => 1,
                ARRAY => 3,
                4 | 5 | DATASEC | 19 => members * 3,
                6 | 13 => members * 2,
                POINTER | 7..=12 | 16 | 18 => 0,
                _ => return Err(Errno::EINVAL),
            };
            let extra: Vec<u32> = words.by_ref().take(count).collect();
            if extra.len() < count {
                return Err(Errno::EINVAL);
            }
            list.push(Type { name, kind, target, extra });
        }
        Ok(Types { types: list, strings })
    }

    /// Types are numbered from 1; 0 is void.
    fn get(&self, number: u32) -> Option<&Type> {
        self.types.get((number as usize).checked_sub(1)?)
    }

    fn of_kind(&self, kind: u32) -> impl Iterator<Item = &Type> {
        self.types.iter().filter(move |t| t.kind == kind)
    }

    fn name(&self, of: &Type) -> Option<&'a str> {
        let tail = self.strings.get(of.name as usize..)?;
        let len = tail.iter().position(|&b| b == 0)?;
        core::str::from_utf8(&tail[..len]).ok()
    }

    /// The length of the array to which type `number` points.
    fn array_length(&self, number: u32) -> Option<u32> {
        let pointer = self.get(number).filter(|t| t.kind == POINTER)?;
        let array = self.get(pointer.target).filter(|t| t.kind == ARRAY)?;
        array.extra.get(2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_type_information_is_refused_and_never_overruns() {
        let mut btf = 0xeb9fu16.to_ne_bytes().to_vec();
        assert_eq!(metadata_number(&btf, "s", "v"), Err(Errno::EINVAL));
        btf.extend_from_slice(&[1, 0]);
        for word in [24u32, 0, u32::MAX, 12, 4] {
            btf.extend_from_slice(&word.to_ne_bytes());
        }
        assert_eq!(metadata_number(&btf, "s", "v"), Err(Errno::EINVAL));
        assert_eq!(metadata_number(&[0; 64], "s", "v"), Err(Errno::EINVAL));
        // A section that says it has more members than there are bytes.
        let mut btf = 0xeb9fu16.to_ne_bytes().to_vec();
        btf.extend_from_slice(&[1, 0]);
        for word in [24u32, 0, 12, 12, 1, 0, DATASEC << 24 | 0xffff, 8] {
            btf.extend_from_slice(&word.to_ne_bytes());
        }
        btf.push(0);
        assert_eq!(metadata_number(&btf, "s", "v"), Err(Errno::EINVAL));
    }
}
