// SPDX-License-Identifier: Apache-2.0

package root

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/fault"
)

// enterName is the first argument of the process between the builder and a
// program in a root.
const enterName = "caisson-enter"

// Descriptors of that process: what to do, and what went wrong.
const (
	planFD   = 3
	reportFD = 4
)

// plan describes the surroundings of a program. Paths are the host's until the
// step "root" is done.
type plan struct {
	Args, Env []string
	Host      string   // host name
	Overlay   string   // options of the overlay that becomes the root; or
	Tree      string   // a directory that does; or neither, for the host's own root
	Mount     string   // an empty directory, for either
	Bind      string   // host directory that is shown at Bind
	Writable  []string // for the host's own root: all else is read-only
	Without   string   // steps that a test takes out

	devices map[string]int // detached mounts of the host's device nodes,
	kernel  map[string]int // of the kernel's own file systems, and
	bind    int            // of Bind
}

// Enter makes the process that [Root.Run] or [Isolated] started into the program
// that it is to run, and does not return then. In every other process it does
// nothing. A program that builds layers calls it first in main, a test of such a
// program first in TestMain.
//
// It cannot be a shell script of the layer or of the host: capabilities must be
// gone before the first program of the layer starts, and what drops them must
// not be a file that an earlier package could replace.
func Enter() {
	if os.Args[0] != enterName {
		return
	}
	runtime.LockOSThread() // capabilities belong to a thread
	var p plan
	err := json.NewDecoder(os.NewFile(planFD, "plan")).Decode(&p)
	if err == nil {
		steps := layerSteps
		if p.Mount == "" {
			steps = hostSteps
		}
		for _, name := range strings.Split(p.Without, ",") {
			steps = steps.Without(name)
		}
		if err = steps.Run(&p); err == nil { // Try has no program
			os.Exit(0)
		}
	}
	fmt.Fprint(os.NewFile(reportFD, "report"), err)
	os.Exit(125)
}

// layerSteps surround a program of the layer. Each takes away one way out;
// test/attack/builder.yaml has the attacks.
var layerSteps = append(check.List[*plan]{
	{Name: "private mounts", OK: privateMounts},
	{Name: "descriptors of the host", OK: (*plan).grab},
	{Name: "root", OK: (*plan).mountRoot},
	{Name: "detached host", OK: detachHost},
	{Name: "proc", OK: func(p *plan) error { return moveTo(p.kernel["proc"], "/proc") }},
	{Name: "read-only proc", OK: protectProc},
	{Name: "sys", OK: func(p *plan) error { return moveTo(p.kernel["sysfs"], "/sys") }},
	{Name: "read-only sys", OK: func(*plan) error { return remount("/sys", unix.MS_RDONLY|inert) }},
	{Name: "devices", OK: (*plan).mountDevices},
	{Name: "keys", OK: hideKeys},
	{Name: "scratch", OK: (*plan).mountScratch},
	{Name: "read-only bind", OK: (*plan).protectBind},
}, lastSteps...)

// hostSteps surround a program of the host that handles files of packages.
var hostSteps = append(check.List[*plan]{
	{Name: "private mounts", OK: privateMounts},
	{Name: "read-only host", OK: (*plan).protectHost},
	{Name: "proc", OK: func(*plan) error { return mountAt("proc", "/proc", inert, "") }},
	{Name: "read-only proc", OK: protectProc},
	{Name: "keys", OK: hideKeys},
}, lastSteps...)

// lastSteps are those of either.
var lastSteps = check.List[*plan]{
	{Name: "limits", OK: limit},
	{Name: "capabilities", OK: dropCapabilities},
	{Name: "no new privileges", OK: noNewPrivileges},
	{Name: "system calls", OK: filterCalls},
	{Name: "inherited descriptors", OK: closeDescriptors},
	{Name: "program", OK: (*plan).exec},
}

// inert holds the flags of a mount without programs and devices.
const inert = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV

func privateMounts(*plan) error {
	unix.Umask(0o022)
	return fault.In(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), "make mounts private")
}

// devices are the nodes that programs of a layer find in /dev.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// grab takes hold of what is needed of the host's tree after that is gone. In a user
// namespace proc and sysfs can be had only while others of them are in sight.
func (p *plan) grab() (err error) {
	clone := func(name string) (int, error) {
		fd, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return -1, fmt.Errorf("hold %s: %w", name, err)
		}
		return fd, nil
	}
	p.devices = map[string]int{}
	for _, name := range devices {
		if p.devices[name], err = clone("/dev/" + name); err != nil {
			return err
		}
	}
	p.kernel = map[string]int{}
	for _, kind := range []string{"proc", "sysfs"} {
		if p.kernel[kind], err = fresh(kind); err != nil {
			return err
		}
	}
	if p.Bind != "" {
		p.bind, err = clone(p.Bind)
	}
	return err
}

// fresh makes a mount of one of the kernel's file systems that lies nowhere yet, see
// fsopen(2).
func fresh(kind string) (int, error) {
	fd, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mount %s: %w", kind, err)
	}
	defer unix.Close(fd) // the mount is apart from it
	mount := -1
	if err = unix.FsconfigCreate(fd); err == nil {
		mount, err = unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_NODEV)
	}
	return mount, fault.In(err, "mount %s", kind)
}

// mountRoot mounts the stack. A kernel may refuse to give the mount the file
// system's identity, or know one of the two words for "none" only.
func (p *plan) mountRoot() (err error) {
	if p.Tree != "" {
		if err := unix.Mount(p.Tree, p.Mount, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", p.Tree, err)
		}
		return remount(p.Mount, unix.MS_NODEV)
	}
	for _, identity := range []string{",uuid=null", ",uuid=off", ""} {
		if err = unix.Mount("caisson", p.Mount, "overlay", unix.MS_NODEV, p.Overlay+identity); err == nil {
			return nil
		}
	}
	return fmt.Errorf("mount overlay: %w", err)
}

// detachHost makes the mounted tree the root, see pivot_root(2): chroot(2) alone
// can be left again.
func detachHost(p *plan) error {
	if err := unix.Chdir(p.Mount); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the host's tree: %w", err)
	}
	return unix.Chdir("/")
}

// directory wants one of the layer as the place of a mount. A link there would move
// the mount, and with it what it protects.
func directory(at string) error {
	info, err := os.Lstat(at)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("mount %s: the layer has a %s in its place", at, describeType(info.Mode()))
	}
	return nil
}

// moveTo mounts what was held on a directory of the layer.
func moveTo(fd int, at string) error {
	if err := directory(at); err != nil {
		return err
	}
	return fault.In(unix.MoveMount(fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH), "mount %s", at)
}

// mountAt mounts a kernel's file system on a directory of the layer.
func mountAt(kind, at string, flags uintptr, options string) error {
	if err := directory(at); err != nil {
		return err
	}
	return fault.In(unix.Mount(kind, at, kind, flags, options), "mount %s", at)
}

func describeType(m fs.FileMode) string {
	if m&fs.ModeSymlink != 0 {
		return "symbolic link"
	}
	return "file"
}

func remount(at string, flags uintptr) error {
	return fault.In(unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""), "remount %s", at)
}

// protectProc keeps programs from the switches of the host's kernel that are not
// files of a process.
func protectProc(*plan) error {
	for _, name := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr"} {
		at := "/proc/" + name
		if _, err := os.Lstat(at); errors.Is(err, fs.ErrNotExist) {
			continue // another kernel's
		}
		if err := unix.Mount(at, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", at, err)
		}
		if err := remount(at, unix.MS_RDONLY|inert); err != nil {
			return err
		}
	}
	return nil
}

// hideKeys keeps from programs which keys the host's kernel holds for root: no namespace
// divides them by who asks.
func hideKeys(*plan) error {
	for _, at := range []string{"/proc/keys", "/proc/key-users"} {
		if err := unix.Mount("/dev/null", at, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, fs.ErrNotExist) { // another kernel's
			return fmt.Errorf("mount %s: %w", at, err)
		}
	}
	return nil
}

// mountDevices makes /dev. The nodes are the host's, bound one by one: the file
// system itself takes none.
func (p *plan) mountDevices() error {
	if err := mountAt("tmpfs", "/dev", inert, "mode=755,size=64k"); err != nil {
		return err
	}
	for name, fd := range p.devices {
		if err := os.WriteFile("/dev/"+name, nil, 0o666); err != nil {
			return err
		}
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, "/dev/"+name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("mount /dev/%s: %w", name, err)
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1",
		"stderr": "fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/dev/shm", "/dev/pts"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mountAt("tmpfs", "/dev/shm", inert, "mode=1777,size=5%"); err != nil {
		return err
	}
	return mountAt("devpts", "/dev/pts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5")
}

// mountScratch mounts what each run has of its own: /run, /tmp, and Bind. With /dev/shm they
// hold a third of the memory, where each would hold half of it.
func (p *plan) mountScratch() error {
	if err := mountAt("tmpfs", "/run", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=5%"); err != nil {
		return err
	}
	if err := os.Mkdir("/run/lock", 0o777); err != nil {
		return err
	}
	if err := os.Chmod("/run/lock", 0o777|fs.ModeSticky); err != nil {
		return err
	}
	if err := mountAt("tmpfs", "/tmp", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size=25%"); err != nil {
		return err
	}
	if p.Bind != "" {
		if err := os.Mkdir(Bind, 0o755); err != nil {
			return err
		}
		if err := moveTo(p.bind, Bind); err != nil {
			return err
		}
	}
	if err := raiseLoopback(); err != nil {
		return err
	}
	return unix.Sethostname([]byte(p.Host))
}

// raiseLoopback makes 127.0.0.1 an address: scripts of mailers ask for one, and there is no
// other.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("raise lo: %w", err)
	}
	defer unix.Close(fd) // it was only asked
	request, err := unix.NewIfreq("lo")
	if err == nil {
		request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
	}
	return fault.In(err, "raise lo")
}

func (p *plan) protectBind() error {
	if p.Bind == "" {
		return nil
	}
	return remount(Bind, unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV)
}

// protectHost makes all that is mounted read-only, but for the directories that
// the program works in. The host's own flags stay.
func (p *plan) protectHost() error {
	for _, dir := range p.Writable {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	set := func(at string, flags uint, attr unix.MountAttr) error {
		return fault.In(unix.MountSetattr(unix.AT_FDCWD, at, flags, &attr), "change the mount of %s", at)
	}
	if err := set("/", unix.AT_RECURSIVE, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return err
	}
	for _, dir := range p.Writable {
		if err := set(dir, 0, unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY,
			Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}); err != nil {
			return err
		}
	}
	return nil
}

// exec becomes the program.
func (p *plan) exec() error {
	os.Clearenv()
	if err := os.Setenv("PATH", searchPath); err != nil {
		return err
	}
	name, err := exec.LookPath(p.Args[0])
	if err != nil {
		return err
	}
	return fault.In(unix.Exec(name, p.Args, p.Env), "start %s", filepath.Base(name))
}
