// SPDX-License-Identifier: Apache-2.0

package module

import (
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type uamliteDoc struct {
	Purge   shape.Flag `site:"purge_expired_users" doc:"purge users who left, instead of expiring them"`
	Builtin shape.Text `site:"builtin_account" doc:"account that is expired once another verified login path exists"`
	Users   []userDoc  `site:"users"`
}

type userDoc struct {
	Name     shape.Text     `site:"user_name,required"`
	Sudo     shape.Flag     `site:"user_sudo"`
	Password valueDoc       `site:"user_crypt_passwd" doc:"crypt(5) hash, * (when absent) or !; {secret: NAME}: sealed to a node, in no layer"`
	Keys     *[]shape.Block `site:"user_sshkeys" doc:"whole content of authorized_keys; [Unmanaged] or [] leaves it alone, absent empties it"`
	UID      shape.Number   `site:"user_uid" doc:"number of the user; the ledger gives one when absent"`
	Groups   []shape.Text   `site:"user_groups" doc:"further groups"`
	Shell    shape.Text     `site:"user_shell" doc:"login shell; /bin/bash when absent"`
	At       report.Pos
}

var uamliteModule = Module{Name: "uamlite", Image: true, Doc: reflect.TypeFor[shape.Raw[uamliteDoc]](),
	About:   "users, baked into the layer",
	Compile: (*Checker).uamlite,
	Paths: []string{"/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/subuid", "/etc/subgid",
		"/etc/sudoers.d/60-caisson-*", "/etc/ssh/authorized_keys.d/*"},
	Baked: func(r *spec.Recipe) any { return r.Accounts },
	NeedsLayer: func(r *spec.Recipe) []spec.NeedsLayer {
		return plain.Each(r.Accounts.Users, func(u spec.User) spec.NeedsLayer {
			return spec.NeedsLayer{Item: "uamlite", Key: u.Name, To: "account"}
		})
	},
	Kinds: []string{"passwords"},
	Lines: func(i *spec.Items) []Line {
		return plain.Each(i.Passwords, func(p spec.Password) Line { return Line{p.User, "secret " + p.Secret} })
	},
	Flag: func(path []string) bool {
		return slices.Contains([]string{"purge_expired_users", "users/*/user_sudo"}, strings.Join(path, "/"))
	},
}

func (c *Checker) uamlite(v *tree.Value, f *Fragment) {
	d := shape.Read[uamliteDoc](c.Checker, v)
	f.Recipe.Accounts.PurgeExpired, f.Recipe.Accounts.Builtin = d.Purge.On, d.Builtin.S
	if d.Builtin.Set() {
		c.In("builtin_account", func() { c.Valid(d.Builtin.At, rules.User(d.Builtin.S)) })
	}
	names, uids := map[string]shape.Text{}, map[int64]shape.Text{}
	wayIn := false
	shape.Each(c.Checker, "users", d.Users, func(_ int, u userDoc) {
		if !u.Name.Set() {
			return
		}
		if u.Name.S == "root" {
			c.Errorf(u.Name.At, "user-name", "", "root cannot be managed as a user")
			return
		}
		if !c.Valid(u.Name.At, rules.User(u.Name.S)) {
			return
		}
		if first, dup := names[u.Name.S]; dup {
			c.Errorf(u.Name.At, "duplicate-user", "", "user %s is given already, at %s", u.Name.S, first.At)
			return
		}
		names[u.Name.S] = u.Name
		if u.UID.Set() {
			if first, dup := uids[u.UID.N]; dup {
				c.Errorf(u.UID.At, "duplicate-user", "", "uid %d belongs to %s", u.UID.N, first.S)
			}
			uids[u.UID.N] = u.Name
			c.Refuse(u.UID.N < 1000 || u.UID.N > 59999, u.UID.At, "range", "give one of these, and change files on disks by chown --from",
				"a user's uid is between 1000 and 59999, not %d", u.UID.N)
		}
		user := c.user(u)
		wayIn = wayIn || Administers(user)
		f.Recipe.Accounts.Users = append(f.Recipe.Accounts.Users, user)
		if u.Password.Secret.Set() && c.Layer { // an attached host keeps its accounts
			f.Items.Passwords = append(f.Items.Passwords, spec.Password{User: user.Name, Secret: u.Password.Secret.S})
		}
	})
	slices.SortFunc(f.Items.Passwords, func(a, b spec.Password) int { return strings.Compare(a.User, b.User) })
	if d.Builtin.Set() && !wayIn {
		c.In("builtin_account", func() {
			c.Warnf(d.Builtin.At, "lock-out", "give a user with sudo a key",
				"%s stays, because no user here can log in and become root", d.Builtin.S)
		})
	}
}

// Administers reports whether a user can log in and become root. A password that is a secret
// does not count: a node that it is not sealed to has none.
func Administers(u spec.User) bool {
	return u.Sudo && (len(u.Keys) > 0 || len(u.Password) > 1)
}

func (c *Checker) user(d userDoc) spec.User {
	u := spec.User{Name: d.Name.S, UID: int(d.UID.N), Sudo: d.Sudo.On, Password: d.Password.Text.S, Shell: d.Shell.S}
	c.In("user_crypt_passwd", func() { c.password(d) })
	switch {
	case d.Keys == nil: // absent: the file goes
		u.Keys = []string{}
		c.Notef(d.Name.At, "no-keys", "write [Unmanaged] to leave them", "user %s has no user_sshkeys: existing keys will be removed", u.Name)
	case len(*d.Keys) == 0:
		c.In("user_sshkeys", func() {
			c.Warnf(d.At, "unmanaged", "write [Unmanaged] to say so, or leave it out for no keys",
				"an empty list leaves the keys of %s as they are", u.Name)
		})
	case len(*d.Keys) == 1 && (*d.Keys)[0].S == "Unmanaged":
	default:
		u.Keys = []string{}
		shape.Each(c.Checker, "user_sshkeys", *d.Keys, func(_ int, k shape.Block) {
			line := strings.TrimSpace(k.S)
			if problem := rules.SSHKeyProblem(line); problem != "" {
				c.Errorf(k.At, "ssh-key", "a line of authorized_keys, see sshd(8)", "BAD SSH KEY FOR '%s': %s", u.Name, problem)
			} else if strings.ContainsFunc(line, rules.Hidden) {
				c.Errorf(k.At, "ssh-key", "write its comment again", "BAD SSH KEY FOR '%s': it has a character that is not shown", u.Name)
			} else if strings.Contains(line, "ssh-dss ") {
				c.Warnf(k.At, "ssh-key", "use an ed25519 key", "sshd takes no DSA keys any more")
			}
			u.Keys = append(u.Keys, line)
		})
	}
	for _, g := range d.Groups {
		c.Valid(g.At, rules.User(g.S))
		u.Groups = append(u.Groups, g.S)
	}
	c.Refuse(d.Shell.Set() && (!strings.HasPrefix(d.Shell.S, "/") || strings.ContainsAny(d.Shell.S, ": \n")), d.Shell.At, "path", "",
		"%q is not the path of a shell", d.Shell.S)
	return u
}

func (c *Checker) password(d userDoc) {
	hash := d.Password.Text
	if c.secret(d.Password.Secret); !hash.Set() {
		return
	}
	problem, weak := rules.HashProblem(hash.S)
	if problem != "" {
		c.Errorf(hash.At, "password", "a hash as crypt(5) has it, for example of mkpasswd", "BAD PASSWORD FOR '%s': %s", d.Name.S, problem)
	} else if weak != "" {
		c.Warnf(hash.At, "password", "make a new one with mkpasswd", "the password of %s is hashed with %s", d.Name.S, weak)
	}
}
