// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/safchain/ethtool"
)

// look notes what is mounted where, with the files that are seen on each writable file system. places
// are directories in their place.
//
// Of a root that is stacked these are all of its files: an overlay keeps its copy of what was changed
// back, and behind a soft-reboot the directories below it cannot be reached.
func (p Picture) look(d devices, places []string) {
	table, _ := text("/proc/self/mountinfo")
	all := parseMounts(table)
	p.mounts(all, d)
	mounted := map[string]bool{}
	for _, m := range all {
		mounted[m.at] = true
	}
	if places == nil {
		places = written(all)
	}
	for _, place := range places {
		p.below(place, mounted)
	}
}

// below notes the files below a directory, without those of other mounts and what changes by itself.
func (p Picture) below(top string, mounted map[string]bool) {
	_ = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error { // what cannot be read is not in it
		var st syscall.Stat_t
		if err != nil || syscall.Lstat(name, &st) != nil {
			return nil // it is gone
		}
		other := name != top && mounted[name]
		if !other && !Alone("file "+name) {
			p["file "+name] = describe(name, &st)
		}
		if d.IsDir() && (other || Alone("file "+filepath.Join(name, "any"))) {
			return fs.SkipDir
		}
		return nil
	})
}

// describe returns mode, owner and content of a file.
func describe(name string, st *syscall.Stat_t) string {
	value := fmt.Sprintf("%06o %d:%d", st.Mode, st.Uid, st.Gid)
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		value += " " + sum(name, st.Size)
	case syscall.S_IFLNK:
		target, _ := os.Readlink(name) // one that is gone has none
		value += " " + target
	case syscall.S_IFCHR, syscall.S_IFBLK:
		value += fmt.Sprintf(" device %#x", st.Rdev)
	}
	return value
}

// maxSum is the size up to which files are read.
const maxSum = 64 << 20

func sum(name string, size int64) string {
	f, err := os.Open(name)
	if err != nil || size > maxSum {
		return fmt.Sprintf("%d bytes", size)
	}
	defer f.Close() // only read
	h := sha256.New()
	_, _ = io.Copy(h, io.LimitReader(f, maxSum)) // the digest of what can be read
	return fmt.Sprintf("%x", h.Sum(nil)[:12])
}

// accounts are the lines of the files of accounts. Of one with a password a digest is enough.
func (p Picture) accounts(dir string) {
	for _, file := range []string{"passwd", "group", "shadow", "gshadow", "subuid", "subgid"} {
		lines, _ := text(filepath.Join(dir, file))
		for line := range strings.Lines(lines) {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
			if strings.HasSuffix(file, "shadow") {
				rest = fmt.Sprintf("%x", sha256.Sum256([]byte(rest)))[:24]
			}
			p["account "+file+" "+name] = rest
		}
	}
}

// units are those that systemd has loaded, and those that it finds. A machine without systemd
// has none.
func (p Picture) units() error {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil //nolint:nilerr // see sd_booted(3)
	}
	for kind, verb := range map[string]string{"unit": "list-units", "unit-file": "list-unit-files"} {
		cmd := exec.Command("systemctl", verb, "--all", "--full", "--plain", "--no-legend", "--no-pager")
		cmd.Env = append(os.Environ(), "SYSTEMD_BUS_TIMEOUT=300") // seconds: an emulated processor takes long for all of them
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("systemctl %s: %w", verb, err)
		}
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(strings.TrimLeft(line, "●* "))
			if len(words) >= 2 {
				p[kind+" "+words[0]] = strings.Join(words[1:min(len(words), 4)], " ")
			}
		}
	}
	return nil
}

// devices are the names of devices that the kernel numbers as they come, by its own names. The
// same content gets another number in the next root, so that a loop device is named by its file,
// and a mapped one by the name that was given to it. A loop device without a file is not among them.
type devices map[string]string

var (
	numbered   = regexp.MustCompile(`^(loop|dm-)\d+$`)
	throughOne = regexp.MustCompile(`-loop\d+$`) // ends the name of a mapped device that is read through a loop device
)

// readDevices reads them below a directory, which is /sys/block of a machine.
func readDevices(dir string) devices {
	d, times := devices{}, map[string]int{}
	found, _ := filepath.Glob(filepath.Join(dir, "*")) // the pattern is one
	for _, at := range found {
		var name string
		if mapped, ok := text(filepath.Join(at, "dm/name")); ok {
			name = "mapped:" + throughOne.ReplaceAllString(mapped, "")
		} else if file, ok := text(filepath.Join(at, "loop/backing_file")); ok {
			// By the way that leads there another root names it otherwise.
			name = "loop:" + filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)
		} else {
			continue
		}
		if times[name]++; times[name] > 1 {
			name = fmt.Sprintf("%s (%d)", name, times[name])
		}
		d[filepath.Base(at)] = name
	}
	return d
}

// source returns the source of a mount as mountinfo has it, by the device's name.
func (d devices) source(text string) string {
	kernel, ok := strings.CutPrefix(text, "/dev/")
	if !ok || !numbered.MatchString(kernel) {
		return text
	}
	return cmp.Or(d[kernel], "a device")
}

// attribute returns the name of a file below /sys by the device's name, "" where nothing is
// behind the device.
func (d devices) attribute(file string) string {
	rest, ok := strings.CutPrefix(file, "/sys/block/")
	kernel, of, _ := strings.Cut(rest, "/")
	if !ok || !numbered.MatchString(kernel) {
		return file
	}
	if d[kernel] == "" {
		return ""
	}
	return "/sys/block/" + d[kernel] + "/" + of
}

// devices notes each of them with its size.
func (p Picture) devices(d devices, dir string) {
	for kernel, name := range d {
		size, _ := text(filepath.Join(dir, kernel, "size")) // one that has just gone has none
		p["device "+name] = size + " sectors"
	}
}

// onDisk are the types of file systems on which somebody writes what stays.
var onDisk = []string{"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "vfat", "xfs"}

// layersOf are the options of an overlay that name its parts: by where they were when it was
// stacked, which differs from boot to boot.
var layersOf = regexp.MustCompile(`,?(lowerdir|upperdir|workdir)\+?=[^,]*`)

var escaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`)

// mount is a line of proc_pid_mountinfo(5).
type mount struct{ at, root, flags, kind, source, options string }

// parseMounts reads the lines of mountinfo.
func parseMounts(table string) (all []mount) {
	for line := range strings.Lines(table) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if ok && len(l) >= 6 && len(r) >= 3 {
			all = append(all, mount{escaped.Replace(l[4]), l[3], l[5], r[0], r[1], r[2]})
		}
	}
	return all
}

// mounts notes what is mounted where, by what it is made of.
func (p Picture) mounts(all []mount, d devices) {
	for _, m := range all {
		name := "mount " + m.at
		for n := 2; p[name] != ""; n++ {
			name = fmt.Sprintf("mount %s (%d)", m.at, n)
		}
		p[name] = strings.TrimSpace(strings.Join([]string{m.kind, d.source(m.source), m.root, m.flags, m.says()}, " "))
	}
}

// says returns the options of a mount without those that are of this boot alone: parts of an
// overlay, and the pipe and the process that answer for an automount.
func (m mount) says() string {
	if m.kind == "autofs" {
		return ""
	}
	return layersOf.ReplaceAllString(m.options, "")
}

// memory are the sizes of a file system in memory: they follow from what is free as it is mounted.
var memory = regexp.MustCompile(`,(size|nr_inodes)=[^, ]*`)

// sameInMemory reports whether two mounts of a file system in memory differ in its sizes at most.
func sameInMemory(name, was, is string) bool {
	return strings.HasPrefix(name, "mount ") && (strings.HasPrefix(was, "tmpfs ") || strings.HasPrefix(was, "devtmpfs ")) &&
		memory.ReplaceAllString(was, "") == memory.ReplaceAllString(is, "")
}

// writable reports whether somebody writes there what stays.
func (m mount) writable() bool {
	rw := func(list string) bool { return slices.Contains(strings.Split(list, ","), "rw") }
	return rw(m.flags) && rw(m.options) && slices.Contains(onDisk, m.kind)
}

// written returns where files are listed: the mount points of writable file systems.
func written(all []mount) (places []string) {
	for _, m := range all {
		if m.writable() && !slices.Contains(places, m.at) {
			places = append(places, m.at)
		}
	}
	return places
}

// text reads the beginning of a file, trimmed; ok is false where it cannot be read.
func text(name string) (value string, ok bool) {
	f, err := os.Open(name)
	if err != nil {
		return "", false
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return string(bytes.TrimSpace(data)), err == nil
}

// sysctls are the keys below /proc/sys. A look into fs/binfmt_misc would mount it.
func (p Picture) sysctls() {
	const top = "/proc/sys"
	swap := strings.NewReplacer("/", ".", ".", "/")                               // as sysctl(8) spells keys
	_ = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error { // what cannot be read is not in the picture
		switch {
		case err != nil:
			return fs.SkipDir // it is gone, or is not for anybody
		case name == top+"/fs/binfmt_misc":
			return fs.SkipDir
		case d.Type().IsRegular():
			if value, ok := text(name); ok {
				p["sysctl "+swap.Replace(name[len(top)+1:])] = value
			}
		}
		return nil
	})
}

// attributes notes the files below /sys that patterns name.
func (p Picture) attributes(patterns []string, d devices) {
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil {
			continue // a pattern that is none names nothing
		}
		for _, name := range names {
			key := d.attribute(name)
			if key == "" {
				continue
			}
			if value, ok := text(name); ok {
				p["sysfs "+key] = value
			}
		}
	}
}

// modules are those that are loaded.
func (p Picture) modules() {
	value, _ := text("/proc/modules")
	for line := range strings.Lines(value) {
		p["module "+strings.Fields(line)[0]] = "there"
	}
}

// limits are those of this process, whom sshd has just given a session.
func (p Picture) limits() {
	value, _ := text("/proc/self/limits")
	for line := range strings.Lines(value) {
		if len(line) > 26 && !strings.HasPrefix(line, "Limit") {
			p["limit "+strings.TrimSpace(line[:26])] = strings.Join(strings.Fields(line[26:]), " ")
		}
	}
}

// network are links with the features of their cards, addresses and routes.
func (p Picture) network() error {
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return fmt.Errorf("ask for links: %w", err)
	}
	defer conn.Close() // only read
	links, err := conn.Link.List()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	cards, err := ethtool.NewEthtool()
	if err == nil {
		defer cards.Close()
	}
	names := map[uint32]string{0: "-"}
	for _, l := range links {
		names[l.Index] = l.Attributes.Name
	}
	for _, l := range links {
		a := l.Attributes
		master := "-"
		if a.Master != nil {
			master = names[*a.Master]
		}
		p["link "+a.Name] = fmt.Sprintf("mac %s mtu %d flags %#x state %d master %s qdisc %s", a.Address, a.MTU, l.Flags,
			a.OperationalState, master, a.QueueDisc)
		if cards == nil {
			continue
		}
		features, err := cards.Features(a.Name)
		for feature, on := range features {
			if err == nil && feature != "" {
				p["feature "+a.Name+" "+feature] = map[bool]string{true: "on", false: "off"}[on]
			}
		}
	}
	addresses, err := conn.Address.List()
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addresses {
		if a.Attributes != nil {
			p[fmt.Sprintf("address %s %s/%d", names[a.Index], a.Attributes.Address, a.PrefixLength)] = fmt.Sprintf("scope %d", a.Scope)
		}
	}
	routes, err := conn.Route.List()
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		a := r.Attributes
		to := (&net.IPNet{IP: a.Dst, Mask: net.CIDRMask(int(r.DstLength), 8*len(a.Dst))}).String()
		if len(a.Dst) == 0 {
			to = fmt.Sprintf("default (%d)", r.Family)
		}
		p[fmt.Sprintf("route %s dev %s table %d metric %d", to, names[a.OutIface], a.Table,
			a.Priority)] = fmt.Sprintf("via %s protocol %d scope %d type %d", a.Gateway, r.Protocol, r.Scope, r.Type)
	}
	return nil
}
