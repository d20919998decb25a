// SPDX-License-Identifier: Apache-2.0

// Modules are loaded in the loader: first the ones that are
// always needed, then those that the machine's devices ask for by modalias.
//
// It reads what depmod(8) wrote (modules.dep and modules.alias, see
// modules.dep(5)) and loads with finit_module(2); the builder has decompressed
// every file, so nothing is unpacked here. There is no udev in the loader.

package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec/rules"
)

// Modules knows the modules of one kernel release.
type Modules struct {
	dir    string              // /lib/modules/<release>
	files  map[string]string   // module name → path below dir
	deps   map[string][]string // module name → names it needs, nearest last
	soft   map[string][]string // module name → names and aliases that should be there before it
	alias  []alias
	loaded map[string]bool // tried, with or without success
	seen   map[string]bool // modaliases that were looked up
	words  []string        // of the kernel's command line
	load   func(file, parameters string) error
}

type alias struct{ pattern, module string }

// OpenModules reads the index below dir. words are those of the kernel's command line, which may
// have parameters of modules, as in module.name=value. A missing directory is an error: a loader
// without modules cannot mount a squashfs.
func OpenModules(dir string, words []string) (*Modules, error) {
	x := &Modules{dir: dir, files: map[string]string{}, deps: map[string][]string{}, soft: map[string][]string{},
		loaded: map[string]bool{}, seen: map[string]bool{}, words: words, load: finit}
	err := eachLine(filepath.Join(dir, "modules.dep"), func(line string) {
		file, needs, ok := strings.Cut(line, ":")
		if !ok {
			return
		}
		name := moduleName(file)
		x.files[name] = file
		for _, need := range strings.Fields(needs) {
			x.deps[name] = append(x.deps[name], moduleName(need))
		}
	})
	if err != nil {
		return nil, err
	}
	err = eachLine(filepath.Join(dir, "modules.alias"), func(line string) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "alias" {
			x.alias = append(x.alias, alias{pattern: f[1], module: rules.ModuleName(f[2])})
		}
	})
	if err != nil {
		return nil, err
	}
	err = eachLine(filepath.Join(dir, "modules.softdep"), func(line string) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "softdep" || f[2] != "pre:" {
			return
		}
		for _, name := range f[3:] {
			if name == "post:" {
				break
			}
			x.soft[rules.ModuleName(f[1])] = append(x.soft[rules.ModuleName(f[1])], name)
		}
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return x, nil
}

// Load loads one module after what it needs, and after what it should find, as ext4 a crc32c of
// the processor's or of the kernel's. A name the index does not have is
// taken to be built into the kernel.
func (x *Modules) Load(name string) error {
	name = rules.ModuleName(name)
	file, ok := x.files[name]
	if !ok || x.loaded[name] {
		return nil
	}
	x.loaded[name] = true
	// modules.dep lists what is needed in reverse order of loading.
	for _, need := range slices.Backward(x.deps[name]) {
		if err := x.Load(need); err != nil {
			return err
		}
	}
	for _, wanted := range x.soft[name] {
		_ = x.Load(wanted) // one that cannot be had may not be needed
		for _, a := range x.alias {
			if a.pattern == wanted {
				_ = x.Load(a.module) // likewise: the processor may lack what another has
			}
		}
	}
	return fault.In(x.load(filepath.Join(x.dir, file), x.parameters(name)), "load module %s", name)
}

// parameters are those that the kernel's command line has for a module. The kernel itself
// gives them to what is built in, and leaves the rest to the loader of modules. A bond is
// made when it is wanted, not with the module: systemd's modprobe.d says so, too.
func (x *Modules) parameters(module string) string {
	var list []string
	if module == "bonding" {
		list = []string{"max_bonds=0"}
	}
	for _, word := range x.words {
		if name, parameter, ok := strings.Cut(word, "."); ok && rules.ModuleName(name) == module {
			list = append(list, parameter)
		}
	}
	return strings.Join(list, " ")
}

// Coldplug loads what the devices below sys ask for and returns how many
// modules that were: bus drivers bring up new devices, so call it until it
// returns 0. A driver that does not load is the device's loss, not the boot's:
// the errors come back joined, all others are loaded.
func (x *Modules) Coldplug(sys string) (int, error) {
	var errs []error
	before := len(x.loaded)
	err := filepath.WalkDir(filepath.Join(sys, "devices"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "modalias" {
			return nil // devices come and go while we walk
		}
		data, err := os.ReadFile(p)
		if text := strings.TrimSpace(string(data)); err == nil && text != "" && !x.seen[text] {
			x.seen[text] = true
			for _, a := range x.alias {
				if ok, _ := path.Match(a.pattern, text); ok { // an alias that is not a pattern matches nothing
					errs = append(errs, x.Load(a.module))
				}
			}
		}
		return nil
	})
	return len(x.loaded) - before, errors.Join(append(errs, err)...)
}

func finit(file, parameters string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	return fault.But(unix.FinitModule(int(f.Fd()), parameters, 0), unix.EEXIST)
}

func moduleName(file string) string {
	base, _, _ := strings.Cut(path.Base(strings.TrimSpace(file)), ".ko")
	return rules.ModuleName(base)
}

func eachLine(name string, do func(line string)) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("module index: %w", err)
	}
	defer f.Close() // only read
	s := bufio.NewScanner(f)
	for s.Scan() {
		do(s.Text())
	}
	return s.Err()
}
