// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"fmt"
	"slices"
	"sort"
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
// name, the one that is asked for, or the lowest that nobody ever had. It sees
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
	all := make([]spec.Account, 0, len(rows))
	for _, row := range rows {
		all = append(all, row)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
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

// here turns the fleet's ledger into this layer's: who is in it, who left it,
// and whose number is only kept.
func here(a spec.Accounts, fleet []spec.Account, db *database) ([]spec.Account, error) {
	users := map[string]bool{}
	for _, u := range a.Users {
		users[u.Name] = true
	}
	uids := db.uids()
	rows := make([]spec.Account, 0, len(fleet))
	for _, row := range fleet {
		switch {
		case users[row.Name]:
			delete(users, row.Name)
			row.State = stateActive
		case row.State == stateActive, a.PurgeExpired: // active elsewhere only, or to be gone
			row.State = statePurged
		}
		if row.State != statePurged {
			if uid := db.uidOf(row.Name); uid != 0 && uid != row.UID {
				return nil, fmt.Errorf("user %q: the layer's packages made it with UID %d, the ledger has %d", row.Name, uid, row.UID)
			}
			if other := uids[row.UID]; other != "" && other != row.Name {
				return nil, fmt.Errorf("user %q: UID %d belongs to %q, which the base or a package made; give the user another uid", row.Name, row.UID, other)
			}
			if db.gidTaken(row.GID, row.Name) {
				return nil, fmt.Errorf("user %q: GID %d belongs to another group; give the user another uid", row.Name, row.GID)
			}
		}
		rows = append(rows, row)
	}
	for name := range users {
		return nil, fmt.Errorf("user %q: not in the ledger", name)
	}
	return rows, nil
}
