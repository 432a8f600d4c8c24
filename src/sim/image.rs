//! Simulated media to and from the real file system.
//!
//! Owns the only code of the simulation that uses `std::fs`: a crash image is written out so that
//! the real start-up can recover from it, and a real directory is taken as the start of a replay.
//! Must never be called from code under simulation. Holes stay holes.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::medium::Medium;

impl Medium {
    /// Writes everything below `from` of this medium into the real `directory`, as readers see it.
    ///
    /// # Errors
    /// Those of the real file system; `NotFound` if `from` is not on the medium.
    pub fn write_to(&self, from: &Path, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        for entry in self.list(from, true, &[])? {
            let target = directory.join(&entry.path);
            if entry.is_directory {
                fs::create_dir_all(&target)?;
                continue;
            }
            let file = fs::File::create(&target)?;
            file.set_len(entry.length)?;
            let content = self.content(&from.join(&entry.path))?;
            for (position, page) in content.pages() {
                let rest = (entry.length - position).min(page.len() as u64) as usize;
                file.write_all_at(&page[..rest], position)?;
            }
        }
        Ok(())
    }

    /// Puts everything below the real `directory` at `to` of this medium, durable.
    ///
    /// # Errors
    /// Those of the real file system.
    pub fn read_from(&mut self, directory: &Path, to: &Path) -> io::Result<()> {
        self.create_directory(to)?;
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.read_from(&entry.path(), &target)?;
            } else {
                self.put(&target, &fs::read(entry.path())?)?;
            }
        }
        self.settle();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_medium_survives_the_way_out_and_in() {
        let mut medium = Medium::new();
        let mut sparse = vec![0; 20_000];
        sparse[9_000] = 1;
        sparse[19_999] = 2;
        medium.put(Path::new("/data/a/sparse"), &sparse).expect("put");
        medium.put(Path::new("/data/empty"), b"").expect("put");
        medium.create_directory(Path::new("/data/b")).expect("made");
        medium.put(Path::new("/other"), b"not below").expect("put");
        let directory = tempfile::tempdir().expect("a directory");
        let target = directory.path().join("out");
        medium.write_to(Path::new("/data"), &target).expect("out");
        let read = fs::read(target.join("a/sparse")).expect("a file");
        assert!(read == sparse);
        let mut back = Medium::new();
        back.read_from(&target, Path::new("/data")).expect("in");
        medium.remove(Path::new("/other")).expect("removed");
        assert!(back.tree() == medium.tree());
        assert_eq!(back.tree().len(), 5);
    }
}
