// SPDX-License-Identifier: Apache-2.0

package powercut

import (
	"bytes"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// notice is struct seccomp_notif: a thread that is about to make a call.
type notice struct {
	id      uint64
	pid     uint32
	flags   uint32
	nr      int32
	arch    uint32
	pointer uint64
	args    [6]uint64
}

// known are the calls that are recorded, by number: what each says of itself, and does.
func known() iter.Seq[uintptr] { return maps.Keys(table) }

var table = map[uintptr]func(notice, string) (call, bool){
	unix.SYS_OPENAT:    func(n notice, dir string) (call, bool) { return n.open(dir, n.args[2], n.args[3]) },
	unix.SYS_OPENAT2:   notice.open2,
	unix.SYS_WRITE:     func(n notice, dir string) (call, bool) { return n.write(dir, -1) },
	unix.SYS_PWRITE64:  func(n notice, dir string) (call, bool) { return n.write(dir, int64(n.args[3])) },
	unix.SYS_FTRUNCATE: notice.truncate,
	unix.SYS_FCHMOD:    func(n notice, dir string) (call, bool) { return n.chmod(n.file(0), dir, n.args[1]) },
	unix.SYS_FCHMODAT:  func(n notice, dir string) (call, bool) { return n.chmod(n.path(0, 1), dir, n.args[2]) },
	unix.SYS_FSYNC:     notice.sync, unix.SYS_FDATASYNC: notice.sync,
	unix.SYS_SYNCFS: notice.syncAll, unix.SYS_SYNC: notice.syncAll,
	unix.SYS_RENAMEAT: notice.rename, unix.SYS_RENAMEAT2: notice.rename,
	unix.SYS_UNLINKAT:  notice.unlink,
	unix.SYS_MKDIRAT:   notice.mkdir,
	unix.SYS_LINKAT:    notice.link,
	unix.SYS_SYMLINKAT: notice.symlink,
	unix.SYS_MOUNT:     notice.mount, unix.SYS_UMOUNT2: notice.mount, unix.SYS_MOVE_MOUNT: notice.mount,
}

func (n notice) call(dir string) (call, bool) { return table[uintptr(n.nr)](n, dir) }

func (n notice) open(dir string, flags, mode uint64) (call, bool) {
	name, ok := below(dir, n.path(0, 1))
	if !ok || flags&(unix.O_CREAT|unix.O_TRUNC) == 0 {
		return call{}, false
	}
	return call{fmt.Sprintf("open %s, flags %#x", name, flags), func(d *disk) {
		switch at := d.find(name); {
		case at == nil && flags&unix.O_CREAT != 0:
			d.add(name, &inode{mode: fs.FileMode(mode) & 0o777 &^ 0o022})
		case at != nil && flags&unix.O_TRUNC != 0 && flags&unix.O_EXCL == 0:
			d.modify(at, change{size: 0})
		}
	}}, true
}

// open2 reads struct open_how.
func (n notice) open2(dir string) (call, bool) {
	how := n.memory(n.args[2], 16)
	if len(how) < 16 {
		return call{}, false
	}
	number := func(at int) (v uint64) {
		for b := range 8 {
			v |= uint64(how[at+b]) << (8 * b)
		}
		return v
	}
	return n.open(dir, number(0), number(8))
}

func (n notice) write(dir string, at int64) (call, bool) {
	name, ok := below(dir, n.file(0))
	if !ok {
		return call{}, false
	}
	data := n.memory(n.args[1], n.args[2])
	position, appends := n.position()
	if at >= 0 {
		position, appends = at, false
	}
	return call{fmt.Sprintf("write %s, %d bytes", name, len(data)), func(d *disk) {
		file := d.find(name)
		if file == nil {
			return
		}
		if appends {
			now, _ := file.now(len(file.since))
			position = int64(len(now))
		}
		d.modify(file, change{at: position, data: data, size: -1})
	}}, true
}

func (n notice) truncate(dir string) (call, bool) {
	name, ok := below(dir, n.file(0))
	return call{"truncate " + name, func(d *disk) { d.modify(d.find(name), change{size: int64(n.args[1])}) }}, ok
}

func (n notice) chmod(at, dir string, mode uint64) (call, bool) {
	name, ok := below(dir, at)
	return call{"chmod " + name, func(d *disk) { d.modify(d.find(name), change{mod: true, size: -1, mode: fs.FileMode(mode) & 0o777}) }}, ok
}

func (n notice) sync(dir string) (call, bool) {
	name, ok := below(dir, n.file(0))
	return call{"fsync " + name, func(d *disk) { d.sync(d.find(name)) }}, ok
}

func (n notice) syncAll(string) (call, bool) { return call{"sync", (*disk).syncAll}, true }

func (n notice) rename(dir string) (call, bool) {
	from, ok := below(dir, n.path(0, 1))
	to, into := below(dir, n.path(2, 3))
	var flags uint64
	if n.nr == unix.SYS_RENAMEAT2 {
		flags = n.args[4]
	}
	return call{fmt.Sprintf("rename %s to %s", from, to), func(d *disk) {
		what, old := d.find(from), d.find(to)
		a, b := d.find(path.Dir(from)), d.find(path.Dir(to))
		if what == nil || b == nil || old != nil && flags&unix.RENAME_NOREPLACE != 0 || old == nil && flags&unix.RENAME_EXCHANGE != 0 {
			return
		}
		if flags&unix.RENAME_EXCHANGE == 0 {
			old = nil
		}
		d.do(link{{a, path.Base(from), old}, {b, path.Base(to), what}})
	}}, ok && into
}

func (n notice) unlink(dir string) (call, bool) {
	name, ok := below(dir, n.path(0, 1))
	folder := n.args[2]&unix.AT_REMOVEDIR != 0
	return call{"unlink " + name, func(d *disk) {
		at := d.find(name)
		if at == nil || (at.names != nil) != folder || len(at.names) > 0 {
			return
		}
		d.do(link{{d.find(path.Dir(name)), path.Base(name), nil}})
	}}, ok
}

func (n notice) mkdir(dir string) (call, bool) {
	name, ok := below(dir, n.path(0, 1))
	return call{"mkdir " + name, func(d *disk) {
		d.add(name, &inode{mode: fs.ModeDir | fs.FileMode(n.args[2])&0o777&^0o022, names: map[string]*inode{}, lasts: map[string]*inode{}})
	}}, ok
}

func (n notice) link(dir string) (call, bool) {
	from, ok := below(dir, n.path(0, 1))
	to, into := below(dir, n.path(2, 3))
	return call{fmt.Sprintf("link %s to %s", from, to), func(d *disk) {
		if what := d.find(from); what != nil && d.find(to) == nil {
			d.do(link{{d.find(path.Dir(to)), path.Base(to), what}})
		}
	}}, ok && into
}

func (n notice) symlink(dir string) (call, bool) {
	target := n.text(n.args[0])
	name, ok := below(dir, n.path(1, 2))
	return call{"symlink " + name, func(d *disk) { d.add(name, &inode{mode: fs.ModeSymlink | 0o777, target: target}) }}, ok
}

// mount changes nothing that lasts; it is a place to cut.
func (n notice) mount(string) (call, bool) { return call{"mount", func(*disk) {}}, true }

// file is what an argument's descriptor leads to.
func (n notice) file(arg int) string {
	to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(n.args[arg]))) // one that is not open is nowhere
	return to
}

// path is what a directory's descriptor and a name lead to, the last link not followed.
func (n notice) path(dir, name int) string {
	text := n.text(n.args[name])
	switch {
	case strings.HasPrefix(text, "/proc/self/"):
		text = fmt.Sprintf("/proc/%d/%s", n.pid, strings.TrimPrefix(text, "/proc/self/"))
	case filepath.IsAbs(text):
	case int32(n.args[dir]) == unix.AT_FDCWD:
		text = fmt.Sprintf("/proc/%d/cwd/%s", n.pid, text)
	default:
		text = filepath.Join(n.file(dir), text)
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(text))
	if err != nil { // it leads nowhere, and changes nothing
		return ""
	}
	return filepath.Join(folder, filepath.Base(text))
}

// position is where a descriptor writes next, or whether that is the end.
func (n notice) position() (at int64, appends bool) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", n.pid, int32(n.args[0]))) // one that is not open writes nowhere
	var flags int64
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "pos":
			_, _ = fmt.Sscan(value, &at) // the kernel's own number
		case "flags":
			_, _ = fmt.Sscanf(strings.TrimSpace(value), "%o", &flags) // the kernel's own number
		}
	}
	return at, flags&unix.O_APPEND != 0
}

// memory reads what a call was given.
func (n notice) memory(at, size uint64) []byte {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", n.pid))
	if err != nil {
		return nil
	}
	defer f.Close() // only read
	data := make([]byte, size)
	got, _ := f.ReadAt(data, int64(at)) // what cannot be read the call cannot, either
	return data[:got]
}

// text is a string that ends with a zero, which may be close to the end of a page.
func (n notice) text(at uint64) string {
	var all []byte
	for len(all) < unix.PathMax {
		page := n.memory(at, 4096-at%4096)
		if len(page) == 0 {
			break
		}
		if end := bytes.IndexByte(page, 0); end >= 0 {
			return string(append(all, page[:end]...))
		}
		all, at = append(all, page...), at+uint64(len(page))
	}
	return string(all)
}

func below(dir, name string) (string, bool) {
	if name == dir {
		return ".", true
	}
	return strings.CutPrefix(name, dir+"/")
}
