// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/rules/credential"
)

// Check refuses users that no layer could have, all at once. It needs no tree, so
// it comes before anything is built.
func Check(a spec.Accounts) error {
	var problems problems
	seen := map[string]bool{}
	for _, u := range a.Users {
		if err := rules.User(u.Name); err != nil {
			problems.add(u.Name, "%v", err)
			continue
		}
		if seen[u.Name] {
			problems.add(u.Name, "named twice")
		}
		seen[u.Name] = true
		if u.Password != "" {
			if problem, _ := credential.HashProblem(u.Password); problem != "" {
				problems.add(u.Name, "the password is not a crypt(5) hash, nor * or !: %s", problem)
			}
		}
		for i, k := range u.Keys {
			if problem := credential.SSHKeyProblem(k); problem != "" {
				problems.add(u.Name, "SSH key %d: %s", i+1, problem)
			}
		}
		if strings.ContainsAny(u.Shell, ":\n") || u.Shell != "" && u.Shell[0] != '/' {
			problems.add(u.Name, "shell %q is not an absolute path", u.Shell)
		}
	}
	return errors.Join(problems...)
}

// check refuses users that this tree cannot have.
func check(r *root.Root, a spec.Accounts, db *database) error {
	var problems problems
	for _, u := range a.Users {
		if row := db.passwd.find(u.Name); row != nil {
			if uid := db.uidOf(u.Name); uid < firstUID || uid > lastUID {
				problems.add(u.Name, "the layer has a system account of that name (UID %d)", uid)
			}
		} else if db.group.find(u.Name) != nil {
			problems.add(u.Name, "the layer has a group of that name that is not the user's own")
		}
		for _, g := range u.Groups {
			if db.group.find(g) == nil {
				problems.add(u.Name, "group %q is not in the layer", g)
			}
		}
		if u.Shell != "" && !runs(r, u.Shell) {
			problems.add(u.Name, "shell %s is not in the layer, and sshd lets nobody in without: add its package", u.Shell)
		}
	}
	return errors.Join(problems...)
}

// runs reports whether the tree has a program of that name.
func runs(r *root.Root, program string) bool {
	at, err := r.Follow(program)
	if err != nil {
		return false
	}
	info, err := r.Lstat(at)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

type problems []error

func (p *problems) add(user, format string, args ...any) {
	*p = append(*p, fmt.Errorf("user %q: %s", user, fmt.Sprintf(format, args...)))
}

// usualBuiltin is the account that Divingbell expires by default.
const usualBuiltin = "ubuntu"

// builtin expires the distribution's own account, once another user can still get in
// and become root. A site that names the account takes one user with both a way
// in (keys or password) and sudo for that. One that does not gets what Divingbell
// does: there must be sudo with a password, for the console, and sudo with keys.
func builtin(a spec.Accounts, db *database) {
	name := a.Builtin
	if name == "" {
		name = usualBuiltin
	}
	row := db.shadow.find(name)
	if row == nil {
		return // nothing to expire
	}
	keys, password := false, false
	for _, u := range a.Users {
		if u.Name == name && a.Builtin == "" {
			return // the site's own
		}
		if u.Name != name && u.Sudo {
			keys = keys || len(u.Keys) > 0
			password = password || strings.HasPrefix(u.Password, "$")
		}
	}
	expired := keys && password || a.Builtin != "" && (keys || password)
	if a.Builtin == "" && !expired {
		return
	}
	for len(row) < 9 {
		row = append(row, "")
	}
	row[7] = ""
	if expired {
		row[7] = "1"
	}
	db.shadow.put(row...)
}
