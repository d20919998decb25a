// SPDX-License-Identifier: Apache-2.0

// Package accounts bakes users into the layer: passwd(5), group(5), shadow(5),
// subuid(5), home directories, sudoers(5) and authorized keys.
//
// A UID belongs to its name for ever. The fleet's ledger has a row for each that was
// ever given: [Settle] takes the last one and gives numbers to who is new, [Leave] says
// who of those that left is still in a layer, [Bake] writes the accounts. A user who
// leaves keeps the number, expired or purged, and no other account ever gets it. What a layer
// is made from is [Present], its own rows: those of others would make it another layer.
package accounts

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Bake writes the accounts into r and returns the ledger of people as this layer sees
// it. fleet holds the rows that [Leave] returned, epoch (seconds) the date of password changes.
func Bake(ctx context.Context, r *root.Root, a spec.Accounts, fleet []spec.Account, epoch int64) ([]spec.Account, error) {
	db, err := open(r)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(Check(a), check(r, a, db)); err != nil {
		return nil, err
	}
	ledger := view(a, People(fleet))
	if err := possible(a, ledger, db); err != nil {
		return nil, err
	}
	users := plain.Map(a.Users, func(u spec.User) (string, spec.User) { return u.Name, u })
	day := strconv.FormatInt(epoch/86400, 10)
	for _, row := range ledger {
		u, active := users[row.Name]
		switch {
		case active:
			db.set(row, u, day)
		case row.State == stateExpired && db.passwd.find(row.Name) == nil: // else a package made it, and keeps it as it did
			db.expire(row, day)
		}
	}
	builtin(a, db)
	if err := db.write(r); err != nil {
		return nil, err
	}
	for _, row := range ledger {
		if u, active := users[row.Name]; active {
			if err := home(r, row); err != nil {
				return nil, err
			}
			if err := access(r, u); err != nil {
				return nil, err
			}
		}
	}
	if err := unmanaged(r, a.Users); err != nil {
		return nil, err
	}
	return ledger, visudo(ctx, r)
}

// home makes the directory from the layer's skeleton.
func home(r *root.Root, row spec.Account) error {
	dir := "/home/" + row.Name
	if err := r.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := r.Lchown(dir, row.UID, row.GID); err != nil {
		return err
	}
	skel, err := r.Path("/etc/skel")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return filepath.WalkDir(skel, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(skel, name)
		if err != nil {
			return err
		}
		if rel == "." {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		to := path.Join(dir, rel)
		switch {
		case info.IsDir():
			if err := r.MkdirAll(to, info.Mode().Perm()); err != nil {
				return err
			}
			return r.Lchown(to, row.UID, row.GID)
		case info.Mode().IsRegular():
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			return r.WriteOwned(to, data, info.Mode().Perm(), row.UID, row.GID)
		}
		return nil // links and devices have no place in a skeleton
	})
}

// access writes the user's keys and sudo rule.
func access(r *root.Root, u spec.User) error {
	if u.Keys != nil {
		var b bytes.Buffer
		for _, k := range u.Keys {
			b.WriteString(strings.TrimSpace(k) + "\n")
		}
		if err := r.WriteFile(path.Join(paths.KeysDir, u.Name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if u.Sudo {
		rule := u.Name + " ALL=(ALL) NOPASSWD:ALL\n"
		return r.WriteFile("/etc/sudoers.d/"+sudoFile(u.Name), []byte(rule), 0o440)
	}
	return nil
}

// unmanagedFile lets sshd read the homes of those whose keys the site leaves alone.
const unmanagedFile = "/etc/ssh/sshd_config.d/01-caisson-unmanaged.conf"

// unmanaged writes that exception; for all others sshd reads the layer's keys only.
func unmanaged(r *root.Root, users []spec.User) error {
	names := plain.Pick(users, func(u spec.User) (string, bool) { return u.Name, u.Keys == nil })
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	text := "# The site leaves the keys of these users alone.\nMatch User " + strings.Join(names, ",") +
		"\n\tAuthorizedKeysFile .ssh/authorized_keys\n"
	return r.WriteFile(unmanagedFile, []byte(text), 0o644)
}

// sudoFile is a name that sudo reads: it skips those with a dot or a tilde.
func sudoFile(user string) string {
	return paths.Prefix + strings.NewReplacer(".", "_2e", "~", "_7e", "_", "__").Replace(user)
}

// visudo checks all rules together, with the layer's own parser.
func visudo(ctx context.Context, r *root.Root) error {
	if _, err := r.Lstat("/usr/sbin/visudo"); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := r.Run(ctx, root.Command{Args: []string{"visudo", "--check", "--quiet"}})
	if exit, ok := errors.AsType[*root.ExitError](err); ok {
		return fmt.Errorf("sudoers: %s", exit.Output)
	}
	return err
}

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
			if problem, _ := rules.HashProblem(u.Password); problem != "" {
				problems.add(u.Name, "the password is not a crypt(5) hash, nor * or !: %s", problem)
			}
		}
		for i, k := range u.Keys {
			if problem := rules.SSHKeyProblem(k); problem != "" {
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
	name := cmp.Or(a.Builtin, usualBuiltin)
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
