// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/internal/stall"
)

// system is the root that is changed.
type system string

func (s system) path(name string) string { return filepath.Join(string(s), name) }

// table is one database as it is now, by lines.
type table struct {
	lines []string
	attr  Value             // owner and mode
	own   map[string]string // see [covered]
}

func (s system) table(database string) (*table, error) {
	info, err := os.Lstat(s.path(database))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not there", database)
	}
	if err != nil {
		return nil, err
	}
	data, err := readCapped(s.path(database), maxDatabase)
	if err != nil {
		return nil, err
	}
	t := &table{attr: owned(info)}
	for line := range strings.Lines(string(data)) {
		t.lines = append(t.lines, strings.TrimSuffix(line, "\n"))
	}
	return t, nil
}

// find returns the row of a name.
func (t *table) find(name string) (Value, error) {
	v := Value{}
	for i, line := range t.lines {
		if rowName, _, ok := strings.Cut(line, ":"); !ok || rowName != name {
			continue
		}
		if v.Kind != absent {
			return v, fmt.Errorf("there are two rows of %s", name)
		}
		v = Value{Kind: row, Row: line, Line: i + 1}
	}
	if own, ok := t.own[name]; ok && v.Kind == row {
		v.Row = withPassword(v.Row, own)
	}
	return v, nil
}

// set makes the row of a name to be v.
func (t *table) set(name string, v Value) error {
	now, err := t.find(name)
	switch {
	case err != nil:
		return err
	case now.Kind != absent && v.Kind != absent:
		if _, ok := t.own[name]; ok { // the secret stays over it
			v.Row = withPassword(v.Row, passwordOf(t.lines[now.Line-1]))
		}
		t.lines[now.Line-1] = v.Row
	case now.Kind != absent:
		t.lines = slices.Delete(t.lines, now.Line-1, now.Line)
	case v.Kind != absent && v.Line > 0 && v.Line <= len(t.lines):
		t.lines = slices.Insert(t.lines, v.Line-1, v.Row)
	case v.Kind != absent:
		t.lines = append(t.lines, v.Row)
	}
	return nil
}

// owner returns who else has a number: of users in passwd(5), of groups in group(5).
func (t *table) owner(number, but string) string {
	for _, line := range t.lines {
		if f := strings.Split(line, ":"); len(f) > 2 && f[2] == number && f[0] != but {
			return f[0]
		}
	}
	return ""
}

func (t *table) text() []byte {
	var b strings.Builder
	for _, line := range t.lines {
		b.WriteString(line + "\n")
	}
	return []byte(b.String())
}

// read returns what stands at a key. Of a password that is a secret it returns what the account
// has beneath it.
func (v *view) read(key string) (Value, error) {
	name, rowName := split(key)
	if rowName == "" {
		at, err := readValue(v.path(name))
		if at.Kind == directory && filepath.Dir(name) == "/home" {
			at.Kind = home
		}
		return at, err
	}
	t := v.tables[name]
	if t == nil {
		var err error
		if t, err = v.table(name); err != nil {
			return Value{}, err
		}
		if name == shadow {
			t.own = v.own
		}
		v.tables[name] = t
	}
	return t.find(rowName)
}

// writable says why nothing can be put beside a path.
func (s system) writable(name string) error {
	dir := filepath.Dir(name)
	for at := dir; at != "/"; at = filepath.Dir(at) {
		info, err := os.Lstat(s.path(at))
		if errors.Is(err, fs.ErrNotExist) && at == dir {
			continue // it is made before what is in it
		}
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", at)
		}
		if err := unix.Access(s.path(at), unix.W_OK); err != nil && at == dir {
			return &fs.PathError{Op: "write to", Path: at, Err: err}
		}
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, s.path(name), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS,
		&st); err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return fmt.Errorf("something is mounted on %s", name)
	}
	return nil
}

// put makes what stands at a path to be v, by one rename.
func (s system) put(name string, v Value) error {
	at := s.path(name)
	switch v.Kind {
	case absent:
		return s.remove(at)
	case directory:
		return makeDirectory(at, v)
	case home:
		return makeHome(at, v)
	}
	s.sweep(at)
	return durable.Write(at, fileMode(v.Mode), func(w io.Writer) error {
		f := w.(*os.File)
		if err := copyAttributes(at, f); err != nil {
			return err
		}
		if err := f.Chown(v.UID, v.GID); err != nil {
			return err
		}
		_, err := f.Write(v.Data)
		return err
	})
}

// remove takes away a file, or a directory that is empty.
func (s system) remove(at string) error {
	switch err := durable.Remove(at); {
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return nil // another process has put something there since
	default:
		return err
	}
}

// sweep removes what a writer that was killed left beside a file.
func (s system) sweep(at string) {
	left, err := filepath.Glob(filepath.Join(filepath.Dir(at), "."+filepath.Base(at)+".*"))
	if err != nil {
		return // a name that is not a pattern leaves nothing that could be found
	}
	for _, name := range left {
		if end := name[strings.LastIndexByte(name, '.')+1:]; end != "" && strings.Trim(end, "0123456789") == "" {
			_ = os.Remove(name) // the next write has another name
		}
	}
}

func fileMode(mode uint32) os.FileMode {
	m := os.FileMode(mode).Perm()
	for bit, to := range map[uint32]os.FileMode{unix.S_ISUID: os.ModeSetuid, unix.S_ISGID: os.ModeSetgid, unix.S_ISVTX: os.ModeSticky} {
		if mode&bit != 0 {
			m |= to
		}
	}
	return m
}

// copyAttributes gives a new file the extended attributes of the one that it replaces.
func copyAttributes(from string, to *os.File) error {
	names := make([]byte, 64<<10)
	n, err := unix.Llistxattr(from, names)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "list attributes of", Path: from, Err: err}
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if name == "" || strings.HasPrefix(name, "trusted.overlay.") {
			continue
		}
		value := make([]byte, 64<<10)
		size, err := unix.Lgetxattr(from, name, value)
		if err == nil {
			err = unix.Fsetxattr(int(to.Fd()), name, value[:size], 0)
		}
		if err != nil {
			return &fs.PathError{Op: "copy attribute " + name + " of", Path: from, Err: err}
		}
	}
	return nil
}

// makeDirectory makes a directory, or gives the one that is there its owner and mode.
func makeDirectory(at string, v Value) error {
	in, err := safepath.Hold(filepath.Dir(at))
	if err != nil {
		return err
	}
	defer in.Close() // what matters was synced
	err = in.MakeDir(filepath.Base(at), v.Mode, v.UID, v.GID)
	if err == nil {
		return in.Sync()
	}
	if !errors.Is(err, fs.ErrExist) {
		return &fs.PathError{Op: "make", Path: at, Err: err}
	}
	dir, err := in.Below(filepath.Base(at))
	if err != nil {
		return err
	}
	defer dir.Close() // what matters was synced
	return own(dir, v)
}

// own gives a directory that is there its owner and mode.
func own(dir safepath.Dir, v Value) error {
	return errors.Join(dir.Chown(v.UID, v.GID), dir.Chmod(fileMode(v.Mode)), dir.Sync()) // in this order: chown(2) drops set-group-ID
}

// makeHome makes a home beside its place and moves it there whole. It is root's alone
// until all is in it: whose home it becomes may have a process already.
func makeHome(at string, v Value) error {
	in, err := safepath.Hold(filepath.Dir(at))
	if err != nil {
		return err
	}
	defer in.Close() // what matters was synced
	name := filepath.Base(at)
	temp := ".caisson-" + name
	beside := filepath.Join(safepath.Name(int(in.Fd())), temp)
	if err := os.RemoveAll(beside); err != nil { // one who made it was killed
		return err
	}
	if err := in.MakeDir(temp, 0o700, -1, -1); err != nil {
		return &fs.PathError{Op: "make", Path: at, Err: err}
	}
	dir, err := in.Below(temp)
	if err != nil {
		return err
	}
	defer dir.Close() // what matters was synced
	for _, n := range v.Tree {
		if err := n.make(dir); err != nil {
			return err
		}
	}
	if err := own(dir, v); err != nil {
		return err
	}
	if err := unix.Renameat2(int(in.Fd()), temp, int(in.Fd()), name, unix.RENAME_NOREPLACE); err != nil && !errors.Is(err, fs.ErrExist) {
		return &fs.PathError{Op: "rename to", Path: at, Err: err}
	} else if err != nil {
		return os.RemoveAll(beside) // another process was faster, and keeps what is there
	}
	return in.Sync()
}

// make makes what a home has.
func (n Node) make(home safepath.Dir) error {
	in, err := home.Below(filepath.Dir(n.Path))
	if err != nil {
		return err
	}
	defer in.Close() // what matters was synced
	if n.Dir {
		return in.MakeDir(filepath.Base(n.Path), n.Mode, n.UID, n.GID)
	}
	return in.Put(filepath.Base(n.Path), safepath.Thing{Mode: unix.S_IFREG | n.Mode, UID: n.UID, GID: n.GID, Content: n.Data})
}

// removeHome takes away a home that is still as it was made; any other stays.
func (s system) removeHome(name string, made []Value) error {
	at := s.path(name)
	now, err := readHome(at)
	if err != nil || !slices.ContainsFunc(made, func(m Value) bool { return m.Sum == now.Sum }) {
		return nil // it is gone, or a user has used it: what cannot be read was not made so
	}
	in, err := safepath.Hold(filepath.Dir(at))
	if err != nil {
		return err
	}
	defer in.Close() // what matters was synced
	temp := ".caisson-" + filepath.Base(at)
	beside := filepath.Join(safepath.Name(int(in.Fd())), temp)
	if err := os.RemoveAll(beside); err != nil {
		return err
	}
	if err := unix.Renameat(int(in.Fd()), filepath.Base(at), int(in.Fd()), temp); err != nil {
		return &fs.PathError{Op: "rename", Path: at, Err: err}
	}
	return errors.Join(os.RemoveAll(beside), in.Sync())
}

// patience is how long another program may keep the databases locked, as in lckpwdf(3).
const patience = 15 * time.Second

// lock takes the lock that useradd(8), passwd(1) and systemd-sysusers(8) take.
func (s system) lock(ctx context.Context) (release func(), err error) {
	f, err := os.OpenFile(s.path("/etc/.pwd.lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithTimeout(ctx, patience)
	defer end()
	for {
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		switch {
		case err == nil:
			return func() { _ = f.Close() }, nil // which ends the lock
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES):
			return nil, errors.Join(&fs.PathError{Op: "lock", Path: f.Name(), Err: err}, f.Close())
		}
		if stall.Rest(ctx, 50*time.Millisecond) != nil {
			return nil, errors.Join(fmt.Errorf("another program keeps %s locked: %w", f.Name(), ctx.Err()), f.Close())
		}
	}
}
