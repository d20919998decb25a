// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-os/caisson/internal/fault"
)

// kvm are the arguments of guests that run on the processor. The probe has them, too: a
// host may know how to run another processor's guests, and not its own.
var kvm = []string{"-accel", "kvm", "-cpu", "host"}

// probeBound is how long the smallest guest may take. It needs some milliseconds; the rest
// is for a host with other work.
const probeBound = 10 * time.Second

// probeCode is written by the smallest guest to QEMU's isa-debug-exit, which ends with
// twice that and one.
const probeCode = 0x10

// probeSector is the smallest guest, a boot sector: mov al, probeCode; out 0xf4, al; hlt.
func probeSector() []byte {
	sector := make([]byte, 512)
	copy(sector, []byte{0xb0, probeCode, 0xe6, 0xf4, 0xf4})
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

// ProbeKVM starts the smallest guest there is by KVM, and returns why that does not work,
// nil when it does. That /dev/kvm can be opened says little: in a virtual machine that has
// one, guests may hang. A host of arm64 starts no sectors, there only [ProbeKernel] shows that.
// dir takes a file for the time of the probe.
func ProbeKVM(ctx context.Context, arch, dir string) (err error) {
	if arch != runtime.GOARCH {
		return fmt.Errorf("the machine is one of %s, and its host of %s", arch, runtime.GOARCH)
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil || arch != "amd64" {
		return err
	}
	name := filepath.Join(dir, "probe.img")
	if err := os.WriteFile(name, probeSector(), 0o600); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(name)) }()
	return probe(ctx, name, probeBound)
}

func probe(ctx context.Context, image string, bound time.Duration) error {
	err := bounded(ctx, boards["amd64"].qemu, bound, append(slices.Clone(kvm), "-machine", "pc", "-m", "16", "-nodefaults",
		"-display", "none", "-monitor", "none", "-device", "isa-debug-exit,iobase=0xf4,iosize=1", "-drive", "file="+image+
			",format=raw,if=floppy"))
	switch exit, ended := errors.AsType[*exec.ExitError](err); {
	case ended && exit.ExitCode() == 2*probeCode+1:
		return nil
	case err == nil:
		return errors.New("a guest of one sector does not run")
	}
	return fmt.Errorf("a guest of one sector: %w", err)
}

// kernelBound is how long a kernel may take until it finds that it has no root: a second or
// two where guests run well.
const kernelBound = 15 * time.Second

// ProbeKernel starts a kernel by KVM, with nothing to run, and returns why it does not come
// to its end, nil when it does. A processor that is itself emulated in part runs the
// smallest guest, and stops in the middle of a kernel.
func ProbeKernel(ctx context.Context, arch, kernel string) error {
	return probeKernel(ctx, boardOf(arch), kvm, kernel, kernelBound)
}

func probeKernel(ctx context.Context, b board, accel []string, kernel string, bound time.Duration) error {
	word, _, _ := strings.Cut(b.machine, ",")
	err := bounded(ctx, b.qemu, bound, append(slices.Clone(accel), "-machine", word, "-smp", "2", "-m", "512",
		"-nodefaults", "-display", "none", "-monitor", "none",
		"-no-reboot", "-kernel", kernel, "-append", "panic=-1")) // without a root it panics, and goes off instead of starting again
	return fault.In(err, "the node's kernel")
}

// bounded runs QEMU; a guest that is still on when its time is over is an error.
func bounded(ctx context.Context, qemu string, bound time.Duration, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, qemu, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	said, err := cmd.CombinedOutput()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("it hangs for %s", bound)
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return nil
	}
	if text := strings.TrimSpace(string(said)); text != "" {
		return fmt.Errorf("%w: %s", err, text[strings.LastIndex(text, "\n")+1:])
	}
	return err
}

// packages are the Debian packages of the programs that a machine takes.
var packages = map[string]string{
	"busybox": "busybox-static",
	"sgdisk":  "gdisk", "mkfs.ext4": "e2fsprogs", "ssh": "openssh-client",
}

// MissingTool is the error of a program that is not installed.
type MissingTool struct {
	Name    string // of the program, or a path
	Package string // of Debian
}

func (m *MissingTool) Error() string {
	if strings.HasPrefix(m.Name, "/") {
		return "no file " + m.Name
	}
	return "no program " + m.Name
}

// Hint says how to get it.
func (m *MissingTool) Hint() string {
	return "on Debian: apt install " + m.Package
}

// CheckTools wants programs to be installed: those that every machine of an architecture takes, and more.
func CheckTools(arch string, more ...string) error {
	b := boardOf(arch)
	for _, name := range append([]string{b.qemu, "busybox"}, more...) {
		if _, err := exec.LookPath(name); err != nil {
			known, ok := packages[name]
			if name == b.qemu {
				known, ok = b.pkg, true
			}
			if !ok {
				return fmt.Errorf("no program %s: %w", name, err)
			}
			return &MissingTool{name, known}
		}
	}
	return nil
}

// Version returns the version of QEMU that runs machines of an architecture.
func Version(ctx context.Context, arch string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, boardOf(arch).qemu, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", boardOf(arch).qemu, err)
	}
	_, after, _ := strings.Cut(string(out), "version ")
	version, _, _ := strings.Cut(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]), " ")
	return version, nil
}
