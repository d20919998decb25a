// SPDX-License-Identifier: Apache-2.0

// Package boot makes what firmware and boot loaders read: the kernel, the
// generic initrd with the agent, which it finds and checks, as its first process, and site.cpio, which says
// whom a node trusts. It also makes, and signs, the kernel's modules of sources for dkms(8).
//
// The initrd is generic: it holds the agent and the loader's modules, nothing
// of a site, so that layers stay reproducible and keys change without a rebuild.
// site.cpio is appended to it by the loader of the kernel, see the kernel's
// buffer-format.rst: archives one after another are unpacked into one tree.
package boot

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// authorities are whom the loader's TLS trusts.
const authorities = "/etc/ssl/certs/ca-certificates.crt"

// Reads lists what [Kernel] and [Initrd.Write] read of a layer, where no programs are
// asked for.
func Reads() []string {
	return []string{"/boot", "/usr/lib/modules", "/usr/lib/firmware", authorities, paths.Busybox}
}

// Initrd describes what goes into the generic initrd.
type Initrd struct {
	Root     *root.Root // the layer
	Release  string     // of its kernel
	Agent    string     // the static agent binary, a host path
	Modules  []string   // policy, see [Select]
	Programs bool       // those that make and repair a state disk, see [paths.DiskPrograms]
}

// Report says what went in.
type Report struct {
	Modules       int   `json:"modules"`
	ModuleBytes   int64 `json:"moduleBytes"` // unpacked
	Firmware      int   `json:"firmware"`
	FirmwareBytes int64 `json:"firmwareBytes"`
	ProgramBytes  int64 `json:"programBytes,omitempty"`
	Microcode     bool  `json:"microcode"`

	// Lacking are the modules that want firmware and find none of it in the layer, by
	// the package of Debian that has it, "" where none has.
	Lacking map[string][]string `json:"lacking,omitempty"`
}

// Write writes the initrd to w.
func (i Initrd) Write(ctx context.Context, w io.Writer) (Report, error) {
	var report Report
	agent, err := os.ReadFile(i.Agent)
	if err != nil {
		return report, err
	}
	a := cpio.New()
	for _, dir := range []string{"proc", "sys", "dev", "run", "etc", "tmp", "newroot"} {
		a.Dir(dir, 0o755)
	}
	a.Char("dev/console", 0o600, 5, 1)
	a.Char("dev/null", 0o666, 1, 3)
	a.File("init", agent, 0o755)
	if ca, err := i.Root.ReadFile(authorities); err == nil {
		a.File("etc/ssl/certs/ca-certificates.crt", ca, 0o644)
	}
	m, err := readModules(i.Root, i.Release)
	if err != nil {
		return report, err
	}
	chosen, err := m.Select(i.Modules)
	if err != nil {
		return report, err
	}
	if err := m.pack(ctx, a, chosen, i.Modules, &report); err != nil {
		return report, err
	}
	if i.Programs {
		if err := i.packPrograms(a, &report); err != nil {
			return report, err
		}
	}
	if err := i.packShell(a, &report); err != nil {
		return report, err
	}
	microcode, err := microcode(i.Root)
	if err != nil {
		return report, err
	}
	if microcode != nil { // before the rest and not compressed: the kernel reads it first of all
		report.Microcode = true
		if _, err := microcode.WriteTo(w); err != nil {
			return report, err
		}
	}
	c := &counter{w: w}
	z, err := zstd.NewWriter(c, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return report, err
	}
	if _, err := a.WriteTo(z); err != nil {
		return report, err
	}
	if err := z.Close(); err != nil {
		return report, err
	}
	_, err = c.Write(cpio.Pad(c.n, 4)) // an archive that is appended by hand begins where the kernel looks for one
	return report, err
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// SiteCPIO is the archive with the one file that makes a generic initrd a site's. The file
// says what a loader must know to boot from it.
func SiteCPIO(b spec.Bootstrap) ([]byte, error) {
	b.SetNeeds()
	data, err := spec.Encode(b)
	if err != nil {
		return nil, err
	}
	a := cpio.New()
	a.File(paths.Bootstrap, data, 0o600)
	return a.Bytes(), nil
}

// Kernel finds the layer's newest kernel: its release and its file.
func Kernel(r *root.Root) (release, file string, err error) {
	names, err := r.ReadDir("/boot")
	if err != nil {
		return "", "", fmt.Errorf("the layer has no kernel: %w", err)
	}
	for _, name := range names {
		rel, ok := strings.CutPrefix(name, "vmlinuz-")
		if ok && Newer(rel, release) {
			release = rel
		}
	}
	if release == "" {
		return "", "", fmt.Errorf("the layer has no kernel: no /boot/vmlinuz-* in it")
	}
	file, err = r.Path(path.Join("/boot", "vmlinuz-"+release))
	return release, file, err
}

// Newer reports whether a kernel's release is newer than another, "" being older than all. Numbers in names are
// compared as numbers: 6.12.9 is older than 6.12.10.
func Newer(a, b string) bool { return b == "" || plain.Natural(a, b) > 0 }

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
	interpreter, libraries, err := needs(data)
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
	interpreter, libraries, err := needs(data)
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

// needs are the dynamic loader and the libraries that a program names.
func needs(program []byte) (interpreter string, libraries []string, err error) {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", nil, err
	}
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

// machines are the architectures as programs name them, by Debian's names.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// agentName is how the program is called where it is installed.
const agentName = "caisson-agent"

// FindAgent returns the agent for an architecture, which need not be that of the machine that
// builds: the file that is named, of several the one which is for it; where none is named,
// caisson-agent or caisson-agent-ARCH in a directory or on PATH.
func FindAgent(named []string, dir, arch string) (string, error) {
	if len(named) == 1 {
		return named[0], nil // whether it fits [CheckAgent] says
	}
	for _, file := range named {
		if _, found, err := readAgent(file); err != nil {
			return "", fmt.Errorf("agent binary %s: %w", file, err)
		} else if found == machines[arch] {
			return file, nil
		}
	}
	if len(named) > 0 {
		return "", cli.Usage("--agent is given once for each architecture", "no agent that --agent names is for %s", arch)
	}
	for _, file := range []string{agentName, agentName + "-" + arch} {
		beside := filepath.Join(dir, file)
		if _, found, err := readAgent(beside); err == nil && found == machines[arch] {
			return beside, nil
		}
		if on, err := exec.LookPath(file); err == nil {
			if _, found, err := readAgent(on); err == nil && found == machines[arch] {
				return on, nil
			}
		}
	}
	return "", cli.Usage("name it with --agent: a release has "+agentName+"_VERSION_linux_"+arch,
		"no %s for %s beside this program or on PATH, nor %s-%s", agentName, arch, agentName, arch)
}

// CheckAgent refuses a binary that cannot be the first process of a loader, where
// there is no dynamic linker.
func CheckAgent(file, arch string) error {
	static, found, err := readAgent(file)
	if err != nil {
		return err
	}
	if !static {
		return errors.New("not static: build it with CGO_ENABLED=0")
	}
	if found != machines[arch] {
		return fmt.Errorf("it is for %v, the layer for %s", found, arch)
	}
	return nil
}

// binfmt is where a kernel says which programs it hands to an emulator.
const binfmt = "/proc/sys/fs/binfmt_misc"

// Emulates has a root that holds nothing else run a static program of an architecture, where it is another
// than the host's. Only that says whether packages' scripts would run: which emulator there is, and whether
// the kernel has opened it before it enters a root without one, is not for us to know. Work is as [root.Root.Work].
func Emulates(ctx context.Context, work, program, arch string) error {
	if arch == runtime.GOARCH {
		return nil
	}
	program, err := filepath.EvalSymlinks(program)
	if err != nil {
		return err
	}
	r, err := root.Empty(work)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.Work) // the next build empties work
	err = r.RunWith(ctx, filepath.Dir(program), root.Command{Args: []string{filepath.Join(root.Bind, filepath.Base(program)), "version"}})
	if err == nil || ctx.Err() != nil {
		return err
	}
	hint := "on Debian: apt install qemu-user-static (qemu-user-binfmt from Debian 13 on), on the host where this is a " +
		"container; or build on " + arch
	if _, missing := os.Stat(binfmt + "/register"); errors.Is(missing, fs.ErrNotExist) {
		hint = "binfmt_misc, by which a kernel finds an emulator, is not mounted: mount -t binfmt_misc binfmt_misc " + binfmt + "; then, " + hint
	} else if strings.Contains(err.Error(), "no such file") {
		hint = "the kernel opens the emulator too late, in the layer's root: its entry in " + binfmt + " needs the flag F; " + hint
	}
	return cli.WithHint(fmt.Errorf("a layer for %s on a host of %s: %w", arch, runtime.GOARCH, root.Said(err)), hint)
}

// readAgent reads of a program for which machines it is, and whether it needs no dynamic linker.
func readAgent(file string) (static bool, machine elf.Machine, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return false, 0, err
	}
	if !info.Mode().IsRegular() {
		return false, 0, errors.New("not a file")
	}
	f, err := elf.Open(file)
	if err != nil {
		return false, 0, fmt.Errorf("not an ELF executable: %w", err)
	}
	defer f.Close()                                    // only read
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN { // the latter is static-pie, too
		return false, 0, fmt.Errorf("not an executable but %v", f.Type)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return false, f.Machine, nil
		}
	}
	return true, f.Machine, nil
}
