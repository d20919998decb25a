// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"encoding/json"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/item"
)

// shadow is the database with passwords, each the second field of its row.
const shadow = "/etc/shadow"

// view is a root as layers have made it: a password that is a secret covers the one that the
// account has of its layer, and is seen only by [Passwords].
type view struct {
	system
	own    map[string]string
	tables map[string]*table // those that were read
}

func (i *Item) view() *view {
	return &view{i.root, covered(i.journal), map[string]*table{}}
}

// covered returns what accounts have beneath a password that is a secret, by user. The journal
// has it for as long as the secret covers it; of the secret it has nothing.
func covered(j item.Journal) map[string]string {
	own := map[string]string{}
	for _, e := range j.Entries(PasswordsName) {
		own[e.Key] = beneath(e)
	}
	return own
}

// beneath returns the row of an account beneath its secret password.
func beneath(e item.Entry) (own string) {
	_ = json.Unmarshal(e.Applied, &own) // the journal's checksum covers it
	return own
}

// cover notes what rows of shadow(5) have from now on beneath passwords that are secrets, and
// returns the users that have one. It is noted before a row is written: a run that is killed
// between finds the row as it was, and another layer's password to give back, which is the one
// that is wanted.
func (i *Item) cover(writes []write) (own map[string]string, err error) {
	own = covered(i.journal)
	var changed []item.Entry
	for _, w := range writes {
		_, user := split(w.key)
		now, ok := own[user]
		if to := passwordOf(w.to.Row); ok && w.to.Kind == row && to != now {
			own[user] = to
			changed = append(changed, item.Entry{Item: PasswordsName, Key: user, Prior: item.Raw(now), Applied: item.Raw(to), Scope: item.Root})
		}
	}
	if len(changed) == 0 {
		return own, nil
	}
	return own, i.journal.Record(changed...)
}

// passwordOf returns the password of a row of shadow(5).
func passwordOf(row string) string {
	_, rest, _ := strings.Cut(row, ":")
	password, _, _ := strings.Cut(rest, ":")
	return password
}

// withPassword returns a row of shadow(5) with another password.
func withPassword(row, password string) string {
	f := strings.Split(row, ":")
	if len(f) > 1 {
		f[1] = password
	}
	return strings.Join(f, ":")
}
