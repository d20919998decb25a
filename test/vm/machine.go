// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Options describe a machine. Either TFTP or Kernel and Initrd say how it boots.
type Options struct {
	Name     string
	Dir      string            // for the console log
	MAC      string            // of its one network card
	UUID     string            // SMBIOS
	Memory   int               // MiB, 0 is 1024
	TFTP     string            // directory that the network's TFTP server shows
	Bootfile string            // name below TFTP that DHCP announces
	Kernel   string            // file, direct boot
	Initrd   string            // file
	Append   string            // kernel command line of a direct boot
	NoCard   bool              // without a network card, whatever MAC, TFTP and Forwards say
	Disk     string            // raw image, the machine's first disk
	ReadOnly bool              // the disk takes no writes
	Forwards map[string]string // address the guest dials, 10.0.2.100:5000, to one on 127.0.0.1
	Extra    []string          // further arguments for qemu
}

// Machine is a running virtual machine.
type Machine struct {
	Name    string
	Console *Console
	ssh     string // address of the host that leads to its port 22
	cmd     *exec.Cmd
	done    chan struct{}
	once    sync.Once
}

// Start boots a machine. It ends with ctx at the latest.
func Start(ctx context.Context, o Options) (*Machine, error) {
	at := ownAddress()
	log, err := os.Create(filepath.Join(o.Dir, o.Name+".console"))
	if err != nil {
		return nil, err
	}
	m := &Machine{Name: o.Name, Console: newConsole(log), ssh: at, done: make(chan struct{})}
	m.cmd = exec.CommandContext(ctx, "qemu-system-x86_64", o.arguments(at)...)
	m.cmd.Stdout = m.Console
	m.cmd.Stderr = m.Console
	// The machine and its helpers die with us, however we die.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	m.cmd.Cancel = func() error { return syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL) }
	if err := m.cmd.Start(); err != nil {
		_ = log.Close() // a copy of what Console holds
		return nil, fmt.Errorf("start machine %s: %w", o.Name, err)
	}
	go func() {
		_ = m.cmd.Wait() // how it ended does not matter: the console shows it
		m.Console.end()
		_ = log.Close() // a copy of what Console holds
		close(m.done)
	}()
	return m, nil
}

func (o Options) arguments(ssh string) []string {
	memory := o.Memory
	if memory == 0 {
		memory = 1024
	}
	args := []string{
		// One thread runs both processors. With a thread each, QEMU 7.2 may translate
		// code that the other processor is patching, and about one boot in 15 dies
		// before /init with "Oops: int3". It costs 8 s of a boot of 64 s.
		"-name", o.Name, "-machine", "q35,graphics=off", "-accel", "tcg,thread=single", "-cpu", "max",
		"-smp", "2", "-m", fmt.Sprint(memory), "-display", "none", "-monitor", "none", "-serial", "stdio",
		"-device", "virtio-rng-pci",
	}
	if o.UUID != "" {
		args = append(args, "-uuid", o.UUID)
	}
	network := o.network(ssh)
	if o.NoCard {
		network = []string{"-nic", "none"}
	}
	args = append(args, network...)
	if o.Disk != "" {
		drive := "file=" + o.Disk + ",format=raw,if=virtio,cache=writethrough"
		if o.ReadOnly {
			drive += ",readonly=on"
		}
		args = append(args, "-drive", drive)
	}
	if o.Kernel != "" {
		args = append(args, "-kernel", o.Kernel, "-initrd", o.Initrd, "-append", o.Append)
	} else {
		args = append(args, "-boot", "n")
	}
	return append(args, o.Extra...)
}

// network is the card and the user network behind it, which reaches nothing but
// the forwards.
func (o Options) network(ssh string) []string {
	network := fmt.Sprintf("user,id=net,restrict=on,hostfwd=tcp:%s-:22", ssh)
	if o.TFTP != "" {
		network += ",tftp=" + o.TFTP + ",bootfile=" + o.Bootfile
	}
	for guest, host := range o.Forwards {
		addr, port, _ := strings.Cut(host, ":")
		network += fmt.Sprintf(",guestfwd=tcp:%s-cmd:busybox nc %s %s", guest, addr, port)
	}
	// In a late slot: a card among the further arguments is found first, and takes the
	// name eth0.
	return []string{"-netdev", network, "-device", "virtio-net-pci,netdev=net,addr=0x10,mac=" + o.MAC}
}

// Used is the processor time that the machine has had so far. On a host with other work
// it says more of what a machine did than a clock does.
func (m *Machine) Used() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(data), ") ") // behind the name of the program
	var ticks int64
	for _, field := range strings.Fields(after)[11:13] { // utime, stime of proc_pid_stat(5)
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the processor time of machine %s: %w", m.Name, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil // USER_HZ is 100
}

// PowerCut ends the machine at once, as pulling the cord would, and waits until
// it is gone.
func (m *Machine) PowerCut() {
	m.once.Do(func() { syscall.Kill(-m.cmd.Process.Pid, syscall.SIGKILL) }) // it may have gone by itself
	<-m.done
}

// Off waits until the machine has switched itself off.
func (m *Machine) Off(ctx context.Context) error {
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("machine %s is still on: %w", m.Name, ctx.Err())
	}
}

// own counts the addresses that this process has taken.
var own atomic.Int32

// ownAddress is one that nobody else listens on, and nobody connects from: QEMU binds it
// by itself, some time later, when the kernel may have given a free port of 127.0.0.1 away.
// The host is this process's own by its PID, which has 22 bits; the port is below those
// that the kernel gives.
func ownAddress() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:%d", 64+pid>>16&63, pid>>8&255, pid&255, 2200+own.Add(1))
}

// Tail is the end of the console, for messages.
func (m *Machine) Tail(lines int) string {
	all := strings.Split(strings.TrimRight(m.Console.String(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
