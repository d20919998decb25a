// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
)

// States of accounts that packages make. Their rows stay when the package goes,
// and say nothing about who is in a layer: only whose a number is.
const (
	stateSystem = "system"       // a user
	stateGroup  = "system-group" // a group; its UID is none
)

// noUID is the UID in a group's row: the kernel's "nobody in particular".
const noUID = -1

// Numbers that packages' scripts choose from, see Debian's policy 9.2.2. Those
// below are the same on every Debian system.
const (
	firstSystem = 100
	lastSystem  = 999
)

// IsSystem says whether a package made the account.
func IsSystem(row spec.Account) bool { return row.State == stateSystem || row.State == stateGroup }

// People is the ledger without the accounts of packages.
func People(rows []spec.Account) []spec.Account {
	return slices.DeleteFunc(slices.Clone(rows), IsSystem)
}

// System reads the accounts that packages made in r, sorted.
func System(r *root.Root) ([]spec.Account, error) {
	db, err := open(r)
	if err != nil {
		return nil, err
	}
	var rows []spec.Account
	for _, row := range db.passwd.rows {
		if uid := number(row, 2); firstSystem <= uid && uid <= lastSystem {
			rows = append(rows, spec.Account{Name: row[0], UID: uid, GID: number(row, 3), State: stateSystem})
		}
	}
	for _, row := range db.group.rows {
		if gid := number(row, 2); firstSystem <= gid && gid <= lastSystem {
			rows = append(rows, spec.Account{Name: row[0], UID: noUID, GID: gid, State: stateGroup})
		}
	}
	sortRows(rows)
	return rows, nil
}

func number(row []string, i int) int {
	if i < len(row) {
		if n, err := strconv.Atoi(row[i]); err == nil {
			return n
		}
	}
	return noUID
}

func sortRows(rows []spec.Account) {
	slices.SortFunc(rows, func(a, b spec.Account) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.State, b.State))
	})
}

// Remember adds to a ledger what a layer has. Rows of people stay as they are.
func Remember(ledger, found []spec.Account) ([]spec.Account, error) {
	uids, gids := names{}, names{}
	type key struct{ name, state string }
	rows := map[key]spec.Account{}
	for _, row := range append(slices.Clone(ledger), found...) {
		k := key{row.Name, row.State}
		known, twice := rows[k]
		switch {
		case !IsSystem(row):
			continue
		case row.State == stateSystem:
			if twice && known.UID != row.UID {
				return nil, fmt.Errorf("account ledger: system user %q has UID %d and UID %d", row.Name, known.UID, row.UID)
			}
			if other, taken := uids[row.UID]; taken && other != row.Name {
				return nil, fmt.Errorf("account ledger: UID %d belongs to %q and to %q", row.UID, other, row.Name)
			}
			uids[row.UID] = row.Name
		default:
			if twice && known.GID != row.GID {
				return nil, fmt.Errorf("account ledger: system group %q has GID %d and GID %d", row.Name, known.GID, row.GID)
			}
			if other, taken := gids[row.GID]; taken && other != row.Name {
				return nil, fmt.Errorf("account ledger: GID %d belongs to group %q and to %q", row.GID, other, row.Name)
			}
			gids[row.GID] = row.Name
		}
		rows[k] = row // the last one: a user's main group may become another
	}
	system := slices.Collect(maps.Values(rows))
	sortRows(system)
	return append(People(ledger), system...), nil
}

// names says whose a number is.
type names map[int]string

// Numbers says which numbers the accounts that packages made should have: those
// of the ledger; for the others their own, or when that is another account's for ever
// the highest that never was any account's.
func Numbers(found, ledger []spec.Account) ([]spec.Account, error) {
	uids, gids := names{}, names{}
	uidOf, gidOf := map[string]int{}, map[string]int{}
	for _, row := range ledger {
		switch row.State {
		case stateSystem:
			uids[row.UID], uidOf[row.Name] = row.Name, row.UID
		case stateGroup:
			gids[row.GID], gidOf[row.Name] = row.Name, row.GID
		}
	}
	keep := func(of map[string]int, by names, name string, n int) {
		if _, known := of[name]; !known && by[n] == "" {
			of[name], by[n] = n, name
		}
	}
	for _, row := range found {
		if row.State == stateSystem {
			keep(uidOf, uids, row.Name, row.UID)
		} else {
			keep(gidOf, gids, row.Name, row.GID)
		}
	}
	next, fresh := lastSystem, map[string]int{} // a user and its group get the same
	for _, row := range found {
		of, by := uidOf, uids
		if row.State == stateGroup {
			of, by = gidOf, gids
		}
		if _, known := of[row.Name]; known {
			continue
		}
		n, again := fresh[row.Name]
		for !again && next >= firstSystem && (uids[next] != "" || gids[next] != "") {
			next--
		}
		if !again {
			n = next
		}
		if n < firstSystem {
			return nil, fmt.Errorf("system account %q: every number of %d–%d has been given away, also to accounts of packages "+
				"that have left", row.Name, firstSystem, lastSystem)
		}
		of[row.Name], by[n], fresh[row.Name] = n, row.Name, n
	}
	groups := names{} // as found
	for _, row := range found {
		if row.State == stateGroup {
			groups[row.GID] = row.Name
		}
	}
	rows := make([]spec.Account, len(found))
	for i, row := range found {
		if row.State == stateSystem {
			row.UID = uidOf[row.Name]
		}
		if group := groups[row.GID]; group != "" {
			row.GID = gidOf[group]
		}
		rows[i] = row
	}
	return rows, nil
}

// Renumber gives the accounts of r, and the files of its upper tree, the numbers
// that [Numbers] said. It comes after the packages' scripts, not before them:
// a script that finds its account there skips the rest of what it does the first
// time, as making the home and setting owners.
func Renumber(r *root.Root, found, numbers []spec.Account) error {
	uids, gids := map[int]int{}, map[int]int{}
	for i, from := range found {
		to := numbers[i]
		if from.State == stateSystem && from.UID != to.UID {
			uids[from.UID] = to.UID
		}
		if from.State == stateGroup && from.GID != to.GID {
			gids[from.GID] = to.GID
		}
	}
	if len(uids)+len(gids) == 0 {
		return nil
	}
	db, err := open(r)
	if err != nil {
		return err
	}
	move := func(row []string, i int, to map[int]int) {
		if n, ok := to[number(row, i)]; ok {
			row[i] = strconv.Itoa(n)
		}
	}
	for _, row := range db.passwd.rows {
		move(row, 2, uids)
		move(row, 3, gids)
	}
	for _, row := range db.group.rows {
		move(row, 2, gids)
	}
	for _, t := range []*table{&db.passwd, &db.group} {
		if err := t.write(r); err != nil {
			return err
		}
	}
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{} // hard links: once each, or a swap would swap back
	return filepath.WalkDir(r.Upper, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		uid, movedUser := uids[int(st.Uid)]
		gid, movedGroup := gids[int(st.Gid)]
		if id := (inode{uint64(st.Dev), st.Ino}); !(movedUser || movedGroup) || seen[id] {
			return nil
		} else if st.Nlink > 1 && !info.IsDir() {
			seen[id] = true
		}
		if !movedUser {
			uid = int(st.Uid)
		}
		if !movedGroup {
			gid = int(st.Gid)
		}
		return chown(name, info, uid, gid)
	})
}

const capability = "security.capability"

// chown changes the owner and nothing else: the kernel drops setuid, setgid and
// capabilities then.
func chown(name string, info fs.FileInfo, uid, gid int) error {
	caps := make([]byte, 256)
	n, err := unix.Lgetxattr(name, capability, caps)
	if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
		return &fs.PathError{Op: "read capabilities", Path: name, Err: err}
	}
	if err := os.Lchown(name, uid, gid); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	if err := os.Chmod(name, info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)); err != nil {
		return err
	}
	if n > 0 {
		if err := unix.Lsetxattr(name, capability, caps[:n], 0); err != nil {
			return &fs.PathError{Op: "set capabilities", Path: name, Err: err}
		}
	}
	return nil
}
