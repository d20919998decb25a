// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"fmt"

	"github.com/caisson-os/caisson/spec"
)

// States of a row of the ledger.
const (
	stateActive  = "active"
	stateExpired = "expired" // left: cannot log in, files keep their owner's name
	statePurged  = "purged"  // left: only the number is kept, for the name
)

// UIDs of people, as in Debian's adduser.conf.
const (
	firstUID = 1000
	lastUID  = 59999
)

// settle decides every account's number and state.
func settle(a spec.Accounts, previous []spec.Account, db *database) ([]spec.Account, error) {
	rows := map[string]spec.Account{}
	owner := map[int]string{}
	for _, row := range previous {
		if other, taken := owner[row.UID]; taken {
			return nil, fmt.Errorf("account ledger: UID %d belongs to %q and to %q", row.UID, other, row.Name)
		}
		owner[row.UID] = row.Name
		if row.State != statePurged {
			row.State = stateExpired
		}
		if a.PurgeExpired {
			row.State = statePurged
		}
		rows[row.Name] = row
	}
	for uid, name := range db.uids() {
		if owner[uid] == "" {
			owner[uid] = name
		}
	}
	// Numbers that are asked for come first: no other user may get them by chance.
	for _, u := range a.Users {
		if u.UID == 0 {
			continue
		}
		if row, known := rows[u.Name]; known && row.UID != u.UID {
			return nil, fmt.Errorf("user %q: UID %d is asked for, but the name has had %d since an earlier layer, and a UID never changes", u.Name, u.UID, row.UID)
		}
		if other := owner[u.UID]; other != "" && other != u.Name {
			return nil, fmt.Errorf("user %q: UID %d belongs to %q", u.Name, u.UID, other)
		}
		if u.UID < firstUID || u.UID > lastUID {
			return nil, fmt.Errorf("user %q: UID %d is outside %d–%d", u.Name, u.UID, firstUID, lastUID)
		}
		owner[u.UID] = u.Name
		rows[u.Name] = spec.Account{Name: u.Name, UID: u.UID}
	}
	next := firstUID
	for _, u := range a.Users {
		row, known := rows[u.Name]
		if !known {
			uid := db.uidOf(u.Name)
			for ; uid == 0; next++ {
				if next > lastUID {
					return nil, fmt.Errorf("user %q: all UIDs of %d–%d are taken, also by accounts that have left", u.Name, firstUID, lastUID)
				}
				if owner[next] == "" && !db.gidTaken(next, u.Name) {
					uid = next
				}
			}
			row = spec.Account{Name: u.Name, UID: uid}
			owner[uid] = u.Name
		}
		if row.GID == 0 {
			gid, err := db.groupFor(u.Name, row.UID)
			if err != nil {
				return nil, err
			}
			row.GID = gid
		}
		row.State = stateActive
		rows[u.Name] = row
	}
	return sortedAccounts(rows), nil
}
