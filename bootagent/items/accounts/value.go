// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
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
