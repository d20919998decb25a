// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// States of a row of the ledger.
const (
	stateActive  = "active"
	stateExpired = "expired" // left: cannot log in, files keep their owner's name
	statePurged  = "purged"  // not in this layer: only the number is kept, for the name
)

// UIDs of people, as in Debian's adduser.conf. An account's own group has the
// same number.
const (
	firstUID = 1000
	lastUID  = 59999
)

// Settle gives every user of a fleet a number: the one the ledger has for the
// name, the one that is asked for, or the lowest that no account ever had. It sees
// the users of all variants at once, so that the numbers do not depend on which
// variant is built first. Rows of users who left stay.
func Settle(variants []spec.Accounts, previous []spec.Account) ([]spec.Account, error) {
	system, err := Remember(nil, slices.DeleteFunc(slices.Clone(previous), func(row spec.Account) bool { return !IsSystem(row) }))
	if err != nil {
		return nil, err
	}
	rows := map[string]spec.Account{}
	owner := map[int]string{}
	for _, row := range People(previous) {
		if other := owner[row.UID]; other != "" && other != row.Name {
			return nil, fmt.Errorf("account ledger: UID %d belongs to %q and to %q", row.UID, other, row.Name)
		}
		if known, twice := rows[row.Name]; twice && known.UID != row.UID {
			return nil, fmt.Errorf("account ledger: %q has UID %d and UID %d", row.Name, known.UID, row.UID)
		}
		owner[row.UID] = row.Name
		if row.State != statePurged {
			row.State = stateExpired
		}
		if rows[row.Name].State != stateExpired {
			rows[row.Name] = row
		}
	}
	var waiting []string
	for _, a := range variants {
		for _, u := range a.Users {
			row, known := rows[u.Name]
			switch {
			case u.UID == 0 && !known:
				waiting = append(waiting, u.Name)
				continue
			case u.UID != 0 && (u.UID < firstUID || u.UID > lastUID):
				return nil, fmt.Errorf("user %q: UID %d is outside %d–%d", u.Name, u.UID, firstUID, lastUID)
			case u.UID != 0 && known && row.UID != u.UID:
				return nil, fmt.Errorf("user %q: UID %d is asked for, but the name has UID %d for ever", u.Name, u.UID, row.UID)
			case u.UID != 0 && owner[u.UID] != "" && owner[u.UID] != u.Name:
				return nil, fmt.Errorf("user %q: UID %d belongs to %q", u.Name, u.UID, owner[u.UID])
			case !known:
				row = spec.Account{Name: u.Name, UID: u.UID, GID: u.UID}
			}
			row.State = stateActive
			rows[u.Name], owner[row.UID] = row, u.Name
		}
	}
	next := firstUID
	for _, name := range waiting {
		if row, known := rows[name]; known { // another variant has it too
			row.State = stateActive
			rows[name] = row
			continue
		}
		for owner[next] != "" {
			next++
		}
		if next > lastUID {
			return nil, fmt.Errorf("user %q: every UID of %d–%d has been given away, also to accounts that have left", name, firstUID, lastUID)
		}
		rows[name], owner[next] = spec.Account{Name: name, UID: next, GID: next, State: stateActive}, name
	}
	all := slices.AppendSeq([]spec.Account{}, maps.Values(rows)) // never nil: a step's key has no other name for none
	slices.SortFunc(all, func(a, b spec.Account) int { return strings.Compare(a.Name, b.Name) })
	return append(all, system...), nil
}

// PeopleIn returns rows for the accounts of a passwd(5) text that have numbers of
// people. They are not the site's users: only their numbers are kept.
func PeopleIn(passwd string) (rows []spec.Account) {
	for line := range strings.Lines(passwd) {
		row := strings.Split(strings.TrimSpace(line), ":")
		if uid := number(row, 2); firstUID <= uid && uid <= lastUID {
			rows = append(rows, spec.Account{Name: row[0], UID: uid, GID: number(row, 3), State: statePurged})
		}
	}
	return rows
}

// Leave says who stays in a layer, expired, if the layer's users do not name them: those who
// were in it before. That they are users of other layers, or leave those, is nothing that
// this one tells.
func Leave(fleet, before []spec.Account) []spec.Account {
	was := map[string]bool{}
	for _, row := range People(before) {
		was[row.Name] = was[row.Name] || row.State != statePurged
	}
	rows := slices.Clone(fleet)
	for i, row := range rows {
		switch {
		case IsSystem(row), row.State == statePurged:
		case was[row.Name]:
			rows[i].State = stateExpired
		default:
			rows[i].State = statePurged
		}
	}
	return rows
}

// Present returns the rows of people whom a layer has: its users, and those who left it
// and are expired.
func Present(a spec.Accounts, fleet []spec.Account) []spec.Account {
	return slices.DeleteFunc(view(a, People(fleet)), func(row spec.Account) bool { return row.State == statePurged })
}

// view turns the fleet's ledger of people into this layer's: who is in it, who left it,
// and whose number is only kept.
func view(a spec.Accounts, fleet []spec.Account) []spec.Account {
	rows := slices.Clone(fleet)
	for i, row := range rows {
		switch {
		case slices.ContainsFunc(a.Users, func(u spec.User) bool { return u.Name == row.Name }):
			rows[i].State = stateActive
		case row.State == stateActive, a.PurgeExpired: // active elsewhere only, or to be gone
			rows[i].State = statePurged
		}
	}
	return rows
}

// Taken is the error for a user whose number another account has already, of those whom the base
// or a package made.
type Taken struct {
	User string
	UID  int
	By   string // an account, or a group
}

func (t *Taken) Error() string {
	return fmt.Sprintf("user %q: number %d belongs to %q, which the base or a package made", t.User, t.UID, t.By)
}

// Row reserves the number for its present holder.
func (t *Taken) Row() spec.Account {
	return spec.Account{Name: t.By, UID: t.UID, GID: t.UID, State: statePurged}
}

// Hint says what the user can do about it.
func (t *Taken) Hint() string {
	return fmt.Sprintf("another user_uid, for a user whom no layer had yet; else leave out the package that makes %q", t.By)
}

// possible refuses a ledger with which the tree is not at one.
func possible(a spec.Accounts, rows []spec.Account, db *database) error {
	for _, u := range a.Users {
		if !slices.ContainsFunc(rows, func(row spec.Account) bool { return row.Name == u.Name }) {
			return fmt.Errorf("user %q: not in the ledger", u.Name)
		}
	}
	uids := db.uids()
	for _, row := range rows {
		if row.State == statePurged {
			continue
		}
		if uid := db.uidOf(row.Name); uid != 0 && uid != row.UID {
			return fmt.Errorf("user %q: the layer's packages made it with UID %d, the ledger has %d", row.Name, uid, row.UID)
		}
		if other := uids[row.UID]; other != "" && other != row.Name {
			return &Taken{row.Name, row.UID, other}
		}
		if other := db.groupOf(row.GID, row.Name); other != "" {
			return &Taken{row.Name, row.GID, other}
		}
	}
	return nil
}
