// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// database is the six files, a row a line, in the order of the files.
type database struct {
	passwd, group, shadow, gshadow, subuid, subgid table
}

// table is one file of colon separated rows, found by their first field.
type table struct {
	file string
	mode fs.FileMode
	gid  int
	rows [][]string
}

func open(r *root.Root) (*database, error) {
	db := &database{
		passwd: table{file: "/etc/passwd", mode: 0o644}, group: table{file: "/etc/group", mode: 0o644},
		shadow: table{file: "/etc/shadow", mode: 0o640}, gshadow: table{file: "/etc/gshadow", mode: 0o640},
		subuid: table{file: "/etc/subuid", mode: 0o644}, subgid: table{file: "/etc/subgid", mode: 0o644},
	}
	for _, t := range db.tables() {
		data, err := r.ReadFile(t.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimRight(line, "\n"); line != "" {
				t.rows = append(t.rows, strings.Split(line, ":"))
			}
		}
	}
	if g := db.group.find("shadow"); len(g) > 2 {
		gid, err := strconv.Atoi(g[2])
		if err != nil {
			return nil, fmt.Errorf("/etc/group: shadow: %q is not a number", g[2])
		}
		db.shadow.gid, db.gshadow.gid = gid, gid
	}
	return db, nil
}

func (db *database) tables() []*table {
	return []*table{&db.passwd, &db.group, &db.shadow, &db.gshadow, &db.subuid, &db.subgid}
}

func (db *database) write(r *root.Root) error {
	for _, t := range db.tables() {
		if err := t.write(r); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) write(r *root.Root) error {
	var b strings.Builder
	for _, row := range t.rows {
		b.WriteString(strings.Join(row, ":") + "\n")
	}
	return r.WriteOwned(t.file, []byte(b.String()), t.mode, 0, t.gid)
}

func (t *table) find(name string) []string {
	return plain.First(t.rows, func(row []string) bool { return row[0] == name })
}

// put replaces the row of the same name or adds one.
func (t *table) put(row ...string) {
	for i := range t.rows {
		if t.rows[i][0] == row[0] {
			t.rows[i] = row
			return
		}
	}
	t.rows = append(t.rows, row)
}

func (db *database) uids() map[int]string {
	all := map[int]string{}
	for _, row := range db.passwd.rows {
		if len(row) > 2 {
			if uid, err := strconv.Atoi(row[2]); err == nil {
				all[uid] = row[0]
			}
		}
	}
	return all
}

func (db *database) uidOf(name string) int {
	if row := db.passwd.find(name); len(row) > 2 {
		uid, _ := strconv.Atoi(row[2]) // callers ask for one that is not 0
		return uid
	}
	return 0
}

// groupOf returns a group, but for one, that has the number; "" where none does.
func (db *database) groupOf(gid int, but string) string {
	for _, row := range db.group.rows {
		if len(row) > 2 && row[2] == strconv.Itoa(gid) && row[0] != but {
			return row[0]
		}
	}
	return ""
}

// set writes an active account.
func (db *database) set(row spec.Account, u spec.User, day string) {
	shell, password := cmp.Or(u.Shell, "/bin/bash"), cmp.Or(u.Password, "*")
	db.passwd.put(u.Name, "x", strconv.Itoa(row.UID), strconv.Itoa(row.GID), "", "/home/"+u.Name, shell)
	db.shadow.put(u.Name, password, day, "0", "99999", "7", "", "", "")
	db.member(row)
	for _, group := range u.Groups {
		db.join(group, u.Name)
	}
}

// expire writes an account that has left: it owns its files and opens no door.
func (db *database) expire(row spec.Account, day string) {
	db.passwd.put(row.Name, "x", strconv.Itoa(row.UID), strconv.Itoa(row.GID), "", "/home/"+row.Name, "/usr/sbin/nologin")
	db.shadow.put(row.Name, "!*", day, "0", "99999", "7", "", "1", "")
	db.member(row)
}

// member writes the account's own group and its subordinate ids: 65536 each, at
// a place that follows from the UID and so never moves.
func (db *database) member(row spec.Account) {
	if db.group.find(row.Name) == nil {
		db.group.put(row.Name, "x", strconv.Itoa(row.GID), "")
	}
	if db.gshadow.find(row.Name) == nil {
		db.gshadow.put(row.Name, "!", "", "")
	}
	start := 100000 + (row.UID-firstUID)*65536
	if start < 100000 || start+65535 > 1<<32-2 {
		return
	}
	for _, t := range []*table{&db.subuid, &db.subgid} {
		if t.find(row.Name) == nil {
			t.put(row.Name, strconv.Itoa(start), "65536")
		}
	}
}

// join adds name to the group's members.
func (db *database) join(group, name string) {
	for _, t := range []*table{&db.group, &db.gshadow} {
		row := t.find(group)
		if len(row) < 4 {
			continue
		}
		var members []string
		if row[3] != "" {
			members = strings.Split(row[3], ",")
		}
		if !slices.Contains(members, name) {
			members = append(members, name)
			slices.Sort(members)
			row[3] = strings.Join(members, ",")
		}
	}
}
