//! What the ELF headers of a file say about how it is loaded. Reads a few headers, trusts none of them.

use std::{fs::File, io, os::unix::fs::FileExt};

/// A program or a library, as far as loading it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elf {
    /// 32 or 64.
    pub bits: u8,
    /// `e_machine`.
    pub machine: u16,
    /// The dynamic loader that it asks for; a program without one is static.
    pub interpreter: Option<String>,
    /// Libraries that it names.
    pub needed: Vec<String>,
}

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
/// Longest name that is read, and most headers and dynamic entries that are looked at.
const MOST: usize = 4096;

/// Little-endian file reading with bounds.
struct Reader<'a>(&'a File);

impl Reader<'_> {
    fn bytes(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn text(&self, at: u64) -> io::Result<String> {
        let mut bytes = vec![0; MOST];
        let n = self.0.read_at(&mut bytes, at)?;
        let end = bytes[..n].iter().position(|b| *b == 0).unwrap_or(n);
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// The number of `len` bytes at `at`; 0 beyond the end.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let field = bytes.get(at..at + len).unwrap_or(&[]);
    field.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Read a file's headers. `Ok(None)`: it is no little-endian ELF file.
pub(crate) fn read(file: &File) -> io::Result<Option<Elf>> {
    let reader = Reader(file);
    let Ok(head) = reader.bytes(0, 52) else { return Ok(None) };
    if !head.starts_with(b"\x7fELF") || head[5] != 1 {
        return Ok(None);
    }
    let wide = match head[4] {
        1 => false,
        2 => true,
        _ => return Ok(None),
    };
    // Offsets of the fields in the 32-bit and the 64-bit layout.
    let word = if wide { 8 } else { 4 };
    let head = if wide { reader.bytes(0, 64)? } else { head };
    let (phoff, phentsize, phnum) = if wide {
        (number(&head, 32, 8), number(&head, 54, 2), number(&head, 56, 2))
    } else {
        (number(&head, 28, 4), number(&head, 42, 2), number(&head, 44, 2))
    };
    let mut elf = Elf {
        bits: if wide { 64 } else { 32 },
        machine: u16::try_from(number(&head, 18, 2)).unwrap_or(0),
        interpreter: None,
        needed: Vec::new(),
    };
    let mut loads = Vec::new();
    let mut dynamic = None;
    for i in 0..phnum.min(MOST as u64) {
        let Some(at) = phoff.checked_add(i * phentsize) else { break };
        let header = reader.bytes(at, if wide { 56 } else { 32 })?;
        let (offset, vaddr, filesz) = if wide {
            (number(&header, 8, 8), number(&header, 16, 8), number(&header, 32, 8))
        } else {
            (number(&header, 4, 4), number(&header, 8, 4), number(&header, 16, 4))
        };
        match number(&header, 0, 4) {
            PT_LOAD => loads.push((vaddr, offset, filesz)),
            PT_DYNAMIC => dynamic = Some((offset, filesz)),
            PT_INTERP => elf.interpreter = Some(reader.text(offset)?),
            _ => {}
        }
    }
    if let Some((offset, size)) = dynamic {
        elf.needed = needed(&reader, offset, size, word, &loads)?;
    }
    Ok(Some(elf))
}

/// The DT_NEEDED names. `loads`: (address, file offset, length) of what is mapped.
fn needed(
    reader: &Reader<'_>,
    offset: u64,
    size: u64,
    word: usize,
    loads: &[(u64, u64, u64)],
) -> io::Result<Vec<String>> {
    let size = usize::try_from(size).unwrap_or(usize::MAX).min(MOST * 2 * word);
    let dynamic = reader.bytes(offset, size)?;
    let entries = dynamic.chunks_exact(2 * word).map(|e| (number(e, 0, word), number(e, word, word)));
    let entries: Vec<_> = entries.take_while(|(tag, _)| *tag != DT_NULL).collect();
    let Some((_, strings)) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB) else { return Ok(Vec::new()) };
    let Some((vaddr, offset, _)) = loads.iter().find(|(v, _, len)| strings.checked_sub(*v).is_some_and(|d| d < *len))
    else {
        return Ok(Vec::new());
    };
    let base = strings - vaddr;
    let at = |name: u64| offset.checked_add(base)?.checked_add(name);
    let names = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED).filter_map(|(_, name)| at(*name));
    names.map(|at| reader.text(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the reading of a real, dynamic program: this test itself.
    #[test]
    fn a_dynamic_program_has_a_loader_and_needs_libc() {
        let elf = read(&File::open("/proc/self/exe").unwrap()).unwrap().unwrap();
        assert_eq!(u32::from(elf.bits), usize::BITS);
        assert!(elf.interpreter.unwrap().contains("ld"));
        assert!(elf.needed.iter().any(|n| n.starts_with("libc.so")), "{:?}", elf.needed);
    }

    /// Protects against headers that lie: every prefix, and single bytes changed, of a real file.
    #[test]
    fn broken_headers_are_refused_or_read_but_never_panic() {
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let dir = std::env::temp_dir().join(format!("slipring-elf-{}", std::process::id()));
        let look = |bytes: &[u8]| {
            std::fs::write(&dir, bytes).unwrap();
            let _ = read(&File::open(&dir).unwrap());
        };
        for len in (0..1024).step_by(7) {
            look(&whole[..len]);
        }
        for at in 0..1024 {
            let mut bytes = whole[..4096].to_vec();
            bytes[at] = 0xff;
            look(&bytes);
        }
        std::fs::remove_file(&dir).unwrap();
        assert!(read(&File::open("/proc/self/status").unwrap()).unwrap().is_none(), "text is no ELF file");
    }
}
