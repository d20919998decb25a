// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/fault"
)

// Kinds of values.
const (
	absent    = ""
	row       = "row"       // of a database such as passwd(5)
	file      = "file"      // keys, a rule of sudo
	directory = "directory" // that files are in
	home      = "home"      // of a user, with what the skeleton has
)

// Value holds the present or the wanted value of a key.
type Value struct {
	Kind string `json:"kind,omitempty"`
	Row  string `json:"row,omitempty"`
	Line int    `json:"line,omitempty"` // of a row, from 1; 0 is the end
	Sum  string `json:"sum,omitempty"`  // sha256 of a file's content, or of all that is in a home
	Data []byte `json:"data,omitempty"` // of a file, where it is to be written
	Mode uint32 `json:"mode,omitempty"` // as stat(2) has permissions
	UID  int    `json:"uid,omitempty"`
	GID  int    `json:"gid,omitempty"`
	Tree []Node `json:"tree,omitempty"` // of a home, where it is to be made
}

// Node is one file or directory in a home.
type Node struct {
	Path string `json:"path"` // below the home
	Dir  bool   `json:"dir,omitempty"`
	Data []byte `json:"data,omitempty"`
	Mode uint32 `json:"mode"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
}

// is reports whether two values are the same. A directory is as it is: what is in it,
// and whose it is, is its owner's business once it is there.
func (v Value) is(as Value) bool {
	if v.Kind != as.Kind || v.Kind == directory || v.Kind == home {
		return v.Kind == as.Kind
	}
	return v.Row == as.Row && v.Sum == as.Sum && v.Mode == as.Mode && v.UID == as.UID && v.GID == as.GID
}

// String says briefly what a value is; a password's hash is not told.
func (v Value) String() string {
	switch v.Kind {
	case absent:
		return "absent"
	case row:
		return digest.Short([]byte(v.Row))
	case file:
		return fmt.Sprintf("%s %04o %d:%d", digest.FromHex(v.Sum[:12]), v.Mode, v.UID, v.GID)
	}
	return v.Kind
}

// brief is a value for the journal, without what is only needed to write it.
func (v Value) brief() Value {
	v.Data, v.Tree = nil, nil
	return v
}

func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// databases are the files that are merged by rows: each belongs to many.
var databases = []string{"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid"}

// keyOf is the key of a row. No path of a layer has a colon in it that is not one of these.
func keyOf(database, name string) string { return database + ":" + name }

// Makes reports whether the wanted layer has a row that the stacked one has not.
func (w Want) Makes(database, name string) bool {
	return slices.ContainsFunc(w.Changes, func(c Change) bool {
		return c.Key == keyOf(database, name) && c.From.Kind == absent && c.To.Kind == row
	})
}

// split returns the file of a key and, for a row of a database, its name.
func split(key string) (name, rowName string) {
	if name, rowName, ok := strings.Cut(key, ":"); ok && slices.Contains(databases, name) {
		return name, rowName
	}
	return key, ""
}

// File is the file of a key.
func File(key string) string {
	name, _ := split(key)
	return name
}

// sets are the fields of a database that list names.
func sets(database string) []int {
	switch path.Base(database) {
	case "group":
		return []int{3}
	case "gshadow":
		return []int{2, 3}
	}
	return nil
}

// merge returns what is to stand where now stands, so that a change to what is wanted is
// made and nothing else is: bases are the values it may be changed from. What the node changed
// in other fields stays; in the same field, what is wanted counts.
func merge(key string, bases []Value, to, now Value) (Value, error) {
	same := !slices.ContainsFunc(bases, func(b Value) bool { return !b.is(to) })
	switch {
	case now.is(to), to.Kind == absent, now.Kind == absent:
		return to, nil
	case same:
		return now, nil
	case to.Kind != row:
		return to, nil
	case !slices.ContainsFunc(bases, func(b Value) bool { return b.Kind == row }):
		return now, errors.New("this node has a row of its own of that name")
	}
	want, have := strings.Split(to.Row, ":"), strings.Split(now.Row, ":")
	if len(want) != len(have) {
		return now, fmt.Errorf("the row has %d fields on this node, and %d in the layer", len(have), len(want))
	}
	database, _ := split(key)
	for i := range want {
		from := column(bases, i)
		if slices.Contains(sets(database), i) {
			have[i] = mergeSet(from, want[i], have[i])
		} else if slices.ContainsFunc(from, func(f string) bool { return f != want[i] }) {
			have[i] = want[i]
		}
	}
	now.Row = strings.Join(have, ":")
	return now, nil
}

// column returns a field of each value that is a row and has it.
func column(values []Value, i int) (fields []string) {
	for _, v := range values {
		if f := strings.Split(v.Row, ":"); v.Kind == row && i < len(f) {
			fields = append(fields, f[i])
		}
	}
	return fields
}

// takeBack returns what is to stand where now stands when the layer's change is taken back:
// in what wants changed of from, what was there before; in the rest, what is there.
func takeBack(key string, from Value, wants []Value, prior, now Value) Value {
	switch {
	case prior.Kind != row || now.Kind != row:
		return prior
	case !slices.ContainsFunc(wants, func(w Value) bool { return w.Kind == row }):
		return now // the node has made it again
	}
	stacked, was, have := strings.Split(from.Row, ":"), strings.Split(prior.Row, ":"), strings.Split(now.Row, ":")
	if len(stacked) != len(have) || len(was) != len(have) {
		return now
	}
	database, _ := split(key)
	for i := range have {
		to := column(wants, i)
		if !slices.ContainsFunc(to, func(f string) bool { return f != stacked[i] }) {
			continue
		}
		if slices.Contains(sets(database), i) {
			have[i] = mergeSet(to, was[i], have[i])
		} else {
			have[i] = was[i]
		}
	}
	now.Row = strings.Join(have, ":")
	return now
}

// mergeSet adds to a list of names what is wanted and was not there from the start, and
// takes out what was there and is not wanted.
func mergeSet(from []string, want, have string) string {
	names := list(have)
	for _, name := range list(want) {
		always := !slices.ContainsFunc(from, func(f string) bool { return !slices.Contains(list(f), name) })
		if !slices.Contains(names, name) && !always {
			names = append(names, name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return !slices.Contains(list(want), name) && slices.ContainsFunc(from, func(f string) bool { return slices.Contains(list(f), name) })
	})
	if slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(list(want)))) {
		return want // in its order
	}
	return strings.Join(names, ",")
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// Caps on what an image of accounts may have, and on a file that goes to the journal.
const (
	maxFiles    = 100_000
	maxFile     = 512 << 10
	maxDatabase = 16 << 20
	maxHome     = 1 << 20
)

// Change holds the values of one key in the stacked image and in the wanted one.
type Change struct {
	Key  string `json:"key"`
	From Value  `json:"from"`
	To   Value  `json:"to"`
}

// Difference returns what differs between two images of accounts, mounted on directories.
// below are those of the images under them. What cannot be put over a running root is
// an error.
//
// The homes of those who leave stay: they are not part of a difference.
func Difference(from, to string, below []string) ([]Change, error) {
	a, err := readImage(from)
	if err != nil {
		return nil, err
	}
	b, err := readImage(to)
	if err != nil {
		return nil, err
	}
	both := maps.Clone(a)
	maps.Copy(both, b)
	var changes []Change
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(both)) {
		was, is := a[key], b[key]
		name, rowName := split(key)
		switch {
		case was.is(is) && was.Mode == is.Mode && was.UID == is.UID && was.GID == is.GID,
			is.Kind == absent && (was.Kind == home || was.Kind == directory):
		case was.Kind != absent && is.Kind != absent && (was.Kind != is.Kind || is.Kind == directory || is.Kind == home):
			problems = append(problems, fmt.Errorf("%s changes its kind, owner or mode", key))
		case rowName == "" && is.Kind == absent && anyHas(below, name):
			problems = append(problems, fmt.Errorf("%s leaves, and an image below has it, too", key))
		default:
			changes = append(changes, Change{key, was, is})
		}
	}
	return changes, errors.Join(problems...)
}

func anyHas(dirs []string, name string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return !errors.Is(err, fs.ErrNotExist) // what cannot be looked at may be there
	})
}

// readImage returns all that an image of accounts has, by key.
func readImage(dir string) (map[string]Value, error) {
	all := map[string]Value{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		key := strings.TrimPrefix(name, dir)
		switch {
		case key == "":
			return nil
		case len(all) > maxFiles:
			return fmt.Errorf("the image of accounts has more than %d files", maxFiles)
		case slices.Contains(databases, key):
			return readRows(all, name, key)
		case path.Dir(key) == "/home" && e.IsDir():
			v, err := readHome(name)
			if err != nil {
				return err
			}
			all[key] = v
			return fs.SkipDir
		}
		v, err := readValue(name)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		all[key] = v
		return nil
	})
	return all, err
}

func readRows(all map[string]Value, name, database string) error {
	data, err := readCapped(name, maxDatabase)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		rowName, _, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		key := keyOf(database, rowName)
		if _, twice := all[key]; twice {
			return fmt.Errorf("%s has two rows of %s", database, rowName)
		}
		all[key] = Value{Kind: row, Row: line}
	}
	return nil
}

// readValue reads a file or a directory; an absent one is not an error.
func readValue(name string) (Value, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return Value{}, fault.But(err, fs.ErrNotExist)
	}
	v := owned(info)
	switch {
	case info.IsDir():
		v.Kind = directory
		return v, nil
	case !info.Mode().IsRegular():
		return Value{}, errors.New("it is neither a file nor a directory")
	}
	v.Kind = file
	if v.Data, err = readCapped(name, maxFile); err != nil {
		return Value{}, err
	}
	v.Sum = sum(v.Data)
	return v, nil
}

func owned(info fs.FileInfo) Value {
	st := info.Sys().(*syscall.Stat_t)
	return Value{Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid)}
}

// readHome reads a home directory and what is in it.
func readHome(dir string) (Value, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return Value{}, err
	}
	v := owned(info)
	v.Kind = home
	size := 0
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel := strings.TrimPrefix(name, dir+"/")
		in, err := readValue(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if size += len(in.Data) + len(rel) + 64; size > maxHome {
			return fmt.Errorf("%s has more than %d bytes", dir, maxHome)
		}
		v.Tree = append(v.Tree, Node{rel, in.Kind == directory, in.Data, in.Mode, in.UID, in.GID})
		return nil
	})
	v.Sum = sumOf(v)
	return v, err
}

// sumOf is the digest of a home and all that is in it.
func sumOf(v Value) string {
	var b strings.Builder
	fmt.Fprintln(&b, v.Mode, v.UID, v.GID)
	for _, n := range v.Tree {
		fmt.Fprintf(&b, "%q %v %o %d %d %s\n", n.Path, n.Dir, n.Mode, n.UID, n.GID, sum(n.Data))
	}
	return sum([]byte(b.String()))
}

// readCapped reads a regular file; a link is not followed.
func readCapped(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return data, err
}
