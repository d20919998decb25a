// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/paths"
)

// libraryDirs are where Debian's and others' dynamic loaders look without being told.
var libraryDirs = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// packPrograms adds the programs that make and repair a state disk, with the libraries
// that they need, each under the name by which it is looked for.
func (i Initrd) packPrograms(a *cpio.Archive, report *Report) error {
	packed := map[string]bool{}
	for _, name := range paths.DiskPrograms {
		if err := i.packELF(a, name, packed, report); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("layer.stateDisk: %w; add e2fsprogs to conf.apt.packages", err)
			}
			return err
		}
	}
	return nil
}

// packShell adds a shell for who is let into a loader that boots nothing, where the layer has
// one that needs no libraries.
func (i Initrd) packShell(a *cpio.Archive, report *Report) error {
	at, err := i.Root.Follow(paths.Busybox)
	if err != nil {
		return err
	}
	data, err := i.Root.ReadFile(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("program %s: %w", paths.Busybox, err)
	}
	interpreter, libraries, err := needs(f)
	if err != nil {
		return fmt.Errorf("program %s: %w", paths.Busybox, err)
	}
	if interpreter == "" && len(libraries) == 0 {
		a.File(paths.Busybox, data, 0o755)
		report.ProgramBytes += int64(len(data))
	}
	return nil
}

func (i Initrd) packELF(a *cpio.Archive, name string, packed map[string]bool, report *Report) error {
	if packed[name] {
		return nil
	}
	packed[name] = true
	at, err := i.Root.Follow(name)
	if err != nil {
		return err
	}
	data, err := i.Root.ReadFile(at)
	if err != nil {
		return err
	}
	a.File(name, data, 0o755)
	report.ProgramBytes += int64(len(data))
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("program %s: %w", name, err)
	}
	interpreter, libraries, err := needs(f)
	if err != nil {
		return fmt.Errorf("program %s: %w", name, err)
	}
	if interpreter != "" {
		if err := i.packELF(a, interpreter, packed, report); err != nil {
			return err
		}
	}
	for _, library := range libraries {
		found, err := i.library(library)
		if err != nil {
			return err
		}
		if err := i.packELF(a, found, packed, report); err != nil {
			return err
		}
	}
	return nil
}

// needs are the dynamic loader and the libraries that a file names.
func needs(f *elf.File) (interpreter string, libraries []string, err error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text := make([]byte, min(p.Filesz, 4096))
			if _, err := p.ReadAt(text, 0); err != nil {
				return "", nil, err
			}
			interpreter = string(bytes.TrimRight(text, "\x00"))
		}
	}
	libraries, err = f.ImportedLibraries()
	return interpreter, libraries, err
}

func (i Initrd) library(name string) (string, error) {
	for _, dir := range libraryDirs {
		at, err := i.Root.Follow(path.Join(dir, name))
		if err != nil {
			return "", err
		}
		if info, err := i.Root.Lstat(at); err == nil && info.Mode().IsRegular() {
			return path.Join(dir, name), nil
		}
	}
	return "", fmt.Errorf("library %s: %w", name, fs.ErrNotExist)
}
