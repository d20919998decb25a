// SPDX-License-Identifier: Apache-2.0

package accounts

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// PasswordsName is the kind of passwords that are secrets.
const PasswordsName = "passwords"

// Passwords gives accounts of the running root passwords that are secrets. Its journal has what
// an account has beneath, which comes back when the secret leaves, and no part of a secret:
// neither has its drift.
type Passwords struct {
	want    []spec.Password
	root    system
	open    func(secret string) (value []byte, why string)
	journal item.Journal
}

// NewPasswords returns the item; root is the prefix of every path. open returns a secret's
// value, or why there is none.
func NewPasswords(want []spec.Password, root string, open func(secret string) (value []byte, why string), j item.Journal) *Passwords {
	return &Passwords{want, system(root), open, j}
}

// Name implements item.Item.
func (*Passwords) Name() string { return PasswordsName }

// Wanted implements item.Item.
func (p *Passwords) Wanted() int { return len(p.want) }

// Used reports whether there is anything to say of this kind. Most nodes have none.
func (p *Passwords) Used() bool { return len(p.want)+len(p.journal.Entries(PasswordsName)) > 0 }

// hash returns the password of an account, as shadow(5) has it, or why it has none here. No
// error has anything of a value.
func (p *Passwords) hash(w spec.Password) (hash, why string, err error) {
	value, why := p.open(w.Secret)
	if why != "" {
		return "", why, nil
	}
	hash = strings.TrimSuffix(string(value), "\n")
	if problem, _ := rules.HashProblem(hash); problem != "" { // which may quote it
		return "", "", fmt.Errorf("secret %q is not a crypt(5) hash", w.Secret)
	}
	return hash, "", nil
}

// Check implements item.Item.
func (p *Passwords) Check(ctx context.Context) ([]spec.Drift, error) {
	if err := ctx.Err(); err != nil || !p.Used() {
		return nil, err
	}
	t, err := p.root.table(shadow)
	if err != nil {
		return nil, err
	}
	var drift []spec.Drift
	entries, wanted := item.ByKey(p.journal.Entries(PasswordsName)), map[string]bool{}
	for _, w := range p.want {
		_, known := entries[w.User]
		d, differs := p.compare(t, w, known, wanted)
		if differs {
			drift = append(drift, d)
		}
	}
	for _, e := range item.Unwanted(p.journal, PasswordsName, wanted) {
		drift = append(drift, spec.Drift{Item: PasswordsName, Key: e.Key, Action: spec.ActionRemove,
			From: "secret", To: said(item.Did[string](e))})
	}
	return drift, nil
}

// compare reports what is to be done about one account. A password that cannot be had any more
// is not wanted: what an earlier overlay set leaves.
func (p *Passwords) compare(t *table, w spec.Password, known bool, wanted map[string]bool) (d spec.Drift, differs bool) {
	d = spec.Drift{Item: PasswordsName, Key: w.User, To: "secret " + w.Secret, Action: spec.ActionRefuse}
	err := rules.Password(w)
	if err == nil && wanted[w.User] {
		err = errors.New("the user is given twice")
	}
	hash, why := "", ""
	if err == nil {
		hash, why, err = p.hash(w)
	}
	if why != "" {
		d.Action, d.Reason = spec.ActionCannot, why
		return d, !known
	}
	wanted[w.User] = true
	now := Value{}
	if err == nil {
		now, err = t.find(w.User)
	}
	switch {
	case err != nil:
	case now.Kind == absent:
		d.Action, d.Reason = spec.ActionDefer, "this root has no account "+w.User
		return d, true
	case passwordOf(now.Row) == hash:
		return d, false
	default:
		err = p.root.writable(shadow)
	}
	if err != nil {
		d.Reason = err.Error()
		return d, true
	}
	d.Action, d.From = spec.ActionChange, said(passwordOf(now.Row))
	return d, true
}

// said says what a field of shadow(5) is, without a password.
func said(field string) string {
	switch {
	case field == "":
		return "none"
	case strings.HasPrefix(field, "*"), strings.HasPrefix(field, "!"):
		return "locked"
	}
	return "another password"
}

// Apply implements item.Item.
func (p *Passwords) Apply(ctx context.Context, drift []spec.Drift) error {
	due := item.Due(drift, spec.ActionChange)
	if err := ctx.Err(); err != nil || len(due) == 0 {
		return err
	}
	release, err := p.root.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	t, err := p.root.table(shadow) // no other process writes it now
	if err != nil {
		return err
	}
	own := covered(p.journal)
	var errs []error
	var entries []item.Entry
	for _, w := range p.want {
		if !due[w.User] {
			continue
		}
		before, err := p.put(t, w)
		if err != nil {
			errs = append(errs, fmt.Errorf("password of %s: %w", w.User, err))
			continue
		}
		if was, known := own[w.User]; known {
			before = was
		}
		entries = append(entries, item.Entry{Item: PasswordsName, Key: w.User, Prior: item.Raw(before),
			Applied: item.Raw(before), Scope: item.Root})
	}
	if err := item.Record(ctx, p.journal, entries...); err != nil || len(entries) == 0 {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, p.write(ctx, t))...)
}

// put changes a row, and returns the password that it had.
func (p *Passwords) put(t *table, w spec.Password) (before string, err error) {
	hash, why, err := p.hash(w)
	if why != "" {
		err = errors.New(why)
	}
	if err != nil {
		return "", err
	}
	v, err := t.find(w.User)
	if err == nil && v.Kind == absent {
		err = errors.New("there is no such account")
	}
	if err != nil {
		return "", err
	}
	before = passwordOf(v.Row)
	v.Row = withPassword(v.Row, hash)
	return before, t.set(w.User, v)
}

// write replaces the database.
func (p *Passwords) write(ctx context.Context, t *table) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	v := t.attr
	v.Kind, v.Data = file, t.text()
	return fault.In(p.root.put(shadow, v), "write %s", shadow)
}

// Restore implements item.Item: an account has again what it had beneath.
func (p *Passwords) Restore(ctx context.Context, entries []item.Entry) error {
	if err := ctx.Err(); err != nil || len(entries) == 0 {
		return err
	}
	release, err := p.root.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	t, err := p.root.table(shadow)
	if err != nil {
		return err
	}
	for _, e := range entries {
		v, err := t.find(e.Key)
		if err != nil {
			return fmt.Errorf("password of %s: %w", e.Key, err)
		}
		if v.Kind == absent { // it has left, and its password with it
			continue
		}
		v.Row = withPassword(v.Row, item.Did[string](e))
		if err := t.set(e.Key, v); err != nil {
			return fmt.Errorf("password of %s: %w", e.Key, err)
		}
	}
	if err := p.write(ctx, t); err != nil {
		return err
	}
	return item.Forget(ctx, p.journal, entries...)
}

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
	return plain.Map(j.Entries(PasswordsName), func(e item.Entry) (string, string) { return e.Key, item.Did[string](e) })
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
