// SPDX-License-Identifier: Apache-2.0

// Package machine runs virtual machines in QEMU: it starts one from a kernel and an
// initrd or by PXE, copies its serial console to the callers that wait for a line, runs commands
// in it by SSH, and pulls its power cord.
//
//	m, err := machine.Start(ctx, machine.Options{Name: "n1", MAC: mac, Kernel: kernel, Initrd: initrd, Append: line, Log: os.Stdout})
//	_, err = m.Console.Wait(ctx, 0, "login:")
//	s, err := m.Login(ctx, "admin", key)
//	out, err := s.Run(ctx, "uname -r")
//	m.PowerCut()
//
// A machine reaches nothing but the servers that [Options.Forwards] names: its network is
// QEMU's user network with restrict=on. Its processor is emulated (TCG) unless the caller
// asks for KVM, so that it runs where there is no KVM or a broken one; what it does takes
// several times as long as on hardware, and says nothing about speed but by [Machine.Used].
// It ends with its context, and with the process that started it.
//
// Whatever waits here waits for a context. Without a deadline it may wait for ever: a guest
// says nothing when it hangs.
//
// It needs qemu-system-x86_64, its network boot ROMs, busybox (for one "nc" a connection)
// and, for state disks, sgdisk and mkfs.ext4; for machines with UEFI, Debian's package ovmf; for those
// of arm64 qemu-system-aarch64 and Debian's package qemu-efi-aarch64.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-os/caisson/internal/fault"
)

// ErrEnded ends a wait when the machine went off first.
var ErrEnded = errors.New("the machine went off")

// Options describe a machine. TFTP, Kernel and Initrd, or a medium say how it boots.
type Options struct {
	Name     string
	Arch     string   // Debian's name of its architecture; empty: amd64
	MAC      string   // of its network card
	Card     string   // QEMU's device of its cards; empty: virtio-net-pci
	MoreMACs []string // of further cards, at most 15, on one switch with the first
	Network  Network  // of its cards
	// addresses on 127.0.0.1 that pass frames on, the network's first, then one a card; none: one
	// switch with all of them
	Cables     []string
	UUID       string // SMBIOS
	KVM        bool   // run on the host's processor, see [ProbeKVM]
	Processors int    // 0 is 1; emulated ones share one thread of the host, so a second one only costs
	Memory     int    // MiB, 0 is 1024
	TFTP       string // directory that the network's TFTP server shows
	Bootfile   string // name below TFTP that DHCP announces
	Kernel     string // file, direct boot
	Initrd     string // file
	Append     string // kernel command line of a direct boot
	NoCard     bool   // without a network card, whatever MAC, TFTP and Forwards say
	// file with the variables of its firmware, made where it is not there; empty: a BIOS, or of arm64
	// firmware that keeps nothing
	UEFI     string
	Secure   bool              // its firmware starts only what is signed, where UEFI is not there by the key that OVMF brings for tests
	CD       string            // image of a disc in its drive, which it boots first
	Stick    string            // raw image of a USB stick, which it boots first
	Disk     string            // raw image, the machine's first disk; UEFI boots it after CD and Stick, and before the network
	ReadOnly bool              // the disk takes no writes
	Forwards map[string]string // address the guest dials, 10.0.2.100:5000, to one on 127.0.0.1
	Extra    []string          // further arguments for qemu

	Credentials map[string]string // for the guest's systemd, by name: systemd.system-credentials(7), by SMBIOS
	Log         io.Writer         // gets what the console prints, while it does; may be nil
}

// Machine is a running virtual machine.
type Machine struct {
	Name    string
	Console *Console
	ssh     string // address of the host that leads to its port 22
	cmd     *exec.Cmd
	keys    io.Writer // its serial line
	done    chan struct{}
	once    sync.Once
}

// Start starts a machine. It ends with ctx at the latest.
func Start(ctx context.Context, o Options) (*Machine, error) {
	if err := o.prepareFirmware(); err != nil {
		return nil, fmt.Errorf("start machine %s: %w", o.Name, err)
	}
	at := OwnAddress()
	m := &Machine{Name: o.Name, Console: newConsole(o.Log), ssh: at, done: make(chan struct{})}
	m.cmd = exec.CommandContext(ctx, boardOf(o.Arch).qemu, o.arguments(at)...)
	keys, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start machine %s: %w", o.Name, err)
	}
	m.keys, m.cmd.Stdout = keys, m.Console
	m.cmd.Stderr = m.Console
	// The machine and its helpers die with us, however we die.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	m.cmd.Cancel = func() error { return syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL) }
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start machine %s: %w", o.Name, err)
	}
	go func() {
		_ = m.cmd.Wait() // how it ended does not matter: the console shows it
		m.Console.end()
		close(m.done)
	}()
	return m, nil
}

// SSH is the address of the host that leads to the machine's port 22.
func (m *Machine) SSH() string { return m.ssh }

// Done is closed when the machine is off and has written all that it writes.
func (m *Machine) Done() <-chan struct{} { return m.done }

// Type types a line on the machine's serial console.
func (m *Machine) Type(line string) error {
	if _, err := io.WriteString(m.keys, line+"\n"); err != nil {
		return fmt.Errorf("type on machine %s: %w", m.Name, err)
	}
	return nil
}

// PowerCut ends the machine at once, as pulling the cord would, and waits until it is
// gone.
func (m *Machine) PowerCut() {
	m.once.Do(func() { syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL) }) // it may have gone by itself
	<-m.done
}

// WaitOff waits until the machine has switched itself off.
func (m *Machine) WaitOff(ctx context.Context) error {
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("machine %s is still on: %w", m.Name, ctx.Err())
	}
}

// Used is the processor time that the machine has had so far, or had in all when it is
// off. On a host with other work it says more of what a machine did than a clock does.
func (m *Machine) Used() (time.Duration, error) {
	select {
	case <-m.done:
		return m.cmd.ProcessState.UserTime() + m.cmd.ProcessState.SystemTime(), nil
	default:
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	d, err := processorTime(string(data))
	return d, fault.In(err, "read the processor time of machine %s", m.Name)
}

// processorTime adds utime and stime of a line of proc_pid_stat(5).
func processorTime(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:]) // behind the name of the program
	if len(fields) < 13 {
		return 0, fmt.Errorf("%d fields in %q", len(fields), stat)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil // USER_HZ is 100
}

// JoinInitrd writes cpio archives one behind the other, as boot loaders do with the
// initrds that they are given: QEMU takes one file.
func JoinInitrd(name string, archives ...string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close() // below, when all is well
	var size int64
	for _, archive := range archives {
		// The kernel looks for the next archive where a word begins.
		size += -size & 3
		if _, err := f.Seek(size, io.SeekStart); err != nil {
			return err
		}
		n, err := appendFile(f, archive)
		if err != nil {
			return err
		}
		size += n
	}
	return f.Close()
}

func appendFile(w io.Writer, name string) (int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close() // only read
	return io.Copy(w, f)
}

// MakeStateDisk makes a raw image with one partition, an ext4 named caisson-state, and copies
// what is in a directory into it, nothing where content is "". Room that an image of this size
// has been given stays taken.
func MakeStateDisk(ctx context.Context, file string, megabytes int, content string) error {
	script := fmt.Sprintf(`set -e
truncate -s %[2]dM %[1]q
sgdisk -n 1:2048:0 -c 1:caisson-state %[1]q >/dev/null
mkfs.ext4 -q -F -E offset=1048576,nodiscard ${1:+-d "$1"} %[1]q %[3]dM`, file, megabytes, megabytes-4)
	if text, err := exec.CommandContext(ctx, "sh", "-c", script, "sh", content).CombinedOutput(); err != nil {
		return fmt.Errorf("make state disk %s: %w\n%s", file, err, text)
	}
	return nil
}
