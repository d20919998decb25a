// SPDX-License-Identifier: Apache-2.0

// Package seal seals a site's secrets to the nodes that need them, see age(1).
//
// A value is opened where the site is published, from a file that is encrypted to the
// publisher or by a program, and sealed to each node's own recipient: the public half of a key that
// the node has made. Only recipients count that an operator has accepted, in recipients.lock
// beside the site. What was sealed is kept in secrets.lock, whole, and taken again for as long
// as value and recipient are the same: age makes another file each time, and a node whose
// overlay has other bytes has another generation. Neither file holds what opens anything, and
// each row of the lock is bound to the publisher's key.
//
// cmd/caisson and caisson-kube import it.
package seal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// Sealer seals the secrets of one site. Its methods may be called by several goroutines.
type Sealer struct {
	Identities *Identities // that open files; nil opens none
	Commands   bool        // programs are run
	Cluster    ReadSecret  // reads Secrets of Kubernetes; nil reads none
	Must       bool        // a value that cannot be opened and may have changed is an error
	Expect     bool        // overlays name what a publish seals again and was not opened here: for a plan, never for a publish
	Timeout    time.Duration

	madeUp     bool // nothing is opened, see [Apart]
	site       *site.Site
	beside     Beside
	recipients *Recipients

	mu     sync.Mutex
	lock   *Lock
	key    *macKey
	values map[string][]byte // opened
	last   sealed
}

// sealed holds the results of the last [Sealer.Seal].
type sealed struct {
	notLooked []string        // secrets
	without   []string        // nodes
	due       map[rowKey]bool // what is to be sealed, whatever its value is, and was not opened
}

// ReadSecret returns the value of an entry of a Secret of Kubernetes.
type ReadSecret func(ctx context.Context, ref site.SecretRef) ([]byte, error)

// Beside are the directories of what is beside a site.
type Beside struct {
	Recipients string // has recipients.lock
	Lock       string // has secrets.lock, which is written
	Key        string // has the key by which values are compared, which is made
}

// Open reads what is beside a site and has the site's overlays hold the secrets that are
// sealed already.
func Open(s *site.Site) (*Sealer, error) {
	key := path.Join(s.Dir(), "keys") // beside the operators' keys
	if keys := s.Trust().Operator; len(keys) > 0 {
		key = path.Dir(keys[0])
	}
	return OpenAt(s, Beside{Recipients: s.Dir(), Lock: s.Dir(), Key: key})
}

// OpenAt is [Open] where not all is in the directory of the site.
func OpenAt(s *site.Site, beside Beside) (*Sealer, error) {
	x := &Sealer{site: s, beside: beside, values: map[string][]byte{}, Timeout: time.Minute}
	var err error
	if x.recipients, err = ReadRecipients(beside.Recipients); err != nil {
		return nil, err
	}
	if x.lock, err = readLock(beside.Lock); err != nil {
		return nil, err
	}
	switch _, err := os.Stat(x.keyFile()); {
	case errors.Is(err, fs.ErrNotExist): // who plans may do without; who seals may not
	case err != nil:
		return nil, err
	default:
		if x.key, err = x.openKey(); err != nil {
			return nil, err
		}
	}
	s.SealWith(x.of)
	return x, nil
}

// of returns what is sealed to a node of some secrets.
func (x *Sealer) of(node string, names []string) (list []spec.Secret, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	to := x.recipients.Nodes[node].Recipient
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range names {
		if x.Expect && x.last.due[rowKey{node, name}] {
			list = append(list, spec.Secret{Name: name, To: to})
		} else if row, ok := x.lock.rows[rowKey{node, name}]; ok && to != "" && row.Recipient == to {
			list = append(list, spec.Secret{Name: name, To: to, Sealed: row.Sealed})
		}
	}
	return list, nil
}

// Seal seals to these nodes what is not sealed to them, or has changed. Nodes that have no
// accepted recipient are left out. Nothing is written, see [Sealer.Write].
func (x *Sealer) Seal(ctx context.Context, nodes []string) error {
	need, forms := map[string][]string{}, map[string]form{} // by secret
	var without []string
	for _, node := range nodes {
		o, err := x.site.Overlay(node, "")
		if err != nil {
			return err
		}
		formsOf(o, forms)
		names := x.site.Secrets().NeededBy(o)
		if len(names) > 0 && x.recipients.Nodes[node].Recipient == "" {
			without = append(without, node)
			continue
		}
		for _, name := range names {
			need[name] = append(need[name], node)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = sealed{without: without, due: map[rowKey]bool{}}
	for _, secret := range x.site.Secrets() {
		if list := need[secret.Name]; len(list) > 0 {
			if err := x.sealOne(ctx, secret, list, forms[secret.Name]); err != nil {
				return fmt.Errorf("secret %s: %w", secret.Name, err)
			}
		}
	}
	return nil
}

// NotLooked returns the secrets whose values may have changed, and were not opened to see that.
func (x *Sealer) NotLooked() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.last.notLooked)
}

// Without returns the nodes that need secrets and have no accepted recipient.
func (x *Sealer) Without() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.last.without)
}

// sealOne seals a secret to nodes. Its value has a form where something is known of it.
func (x *Sealer) sealOne(ctx context.Context, s site.Secret, nodes []string, is form) (err error) {
	if x.Must && x.key == nil && len(x.lock.rows) > 0 { // nobody has checked the rows
		if x.key, err = x.openKey(); err != nil {
			return err
		}
	}
	source := ""
	if s.Data != nil {
		source = digest.Of(s.Data)
	}
	todo := slices.DeleteFunc(nodes, func(node string) bool { // the same file has the same value
		row, ok := x.lock.rows[rowKey{node, s.Name}]
		return source != "" && ok && row.Source == source && x.counts(row)
	})
	if len(todo) == 0 {
		return nil
	}
	if opens, hint := x.opens(s); !opens {
		if x.Must {
			return cli.WithHint(fmt.Errorf("%s, and nothing was given to open it with", x.whyAnew(s.Name, todo)), hint)
		}
		x.last.notLooked = append(x.last.notLooked, s.Name)
		for _, node := range todo {
			if row, ok := x.lock.rows[rowKey{node, s.Name}]; !ok || !x.counts(row) {
				x.last.due[rowKey{node, s.Name}] = true
			}
		}
		return nil
	}
	value, err := x.value(ctx, s, is)
	if err == nil && is != nil {
		err = is(value)
	}
	if err != nil {
		return err
	}
	if x.key == nil {
		if x.key, err = x.openKey(); err != nil {
			return err
		}
	}
	mac := x.key.of(s.Name, value)
	for _, node := range todo {
		row, ok := x.lock.rows[rowKey{node, s.Name}]
		if !ok || row.MAC != mac || !x.counts(row) {
			to := x.recipients.Nodes[node].Recipient
			sealed, err := encrypt(to, value)
			if err != nil {
				return fmt.Errorf("seal to node %s: %w", node, err)
			}
			row = Row{Node: node, Name: s.Name, Recipient: to, MAC: mac, Sealed: sealed}
		}
		row.Source = source
		row.Bound = x.key.bound(row)
		x.lock.rows[rowKey{node, s.Name}] = row
	}
	return nil
}

// counts reports whether a row is bound, which [Sealer.openKey] has checked, and is sealed to the
// recipient that its node has now.
func (x *Sealer) counts(row Row) bool {
	return row.Bound != "" && row.Recipient == x.recipients.Nodes[row.Node].Recipient
}

// whyAnew says why a secret is to be sealed again to nodes: not yet, or its source is another one.
func (x *Sealer) whyAnew(name string, todo []string) string {
	var nodes [4]int
	for _, node := range todo {
		switch row, ok := x.lock.rows[rowKey{node, name}]; {
		case !ok:
			nodes[2]++
		case row.Recipient != x.recipients.Nodes[node].Recipient:
			nodes[3]++
		case row.Bound == "":
			nodes[1]++
		default:
			nodes[0]++
		}
	}
	var why []string
	for i, says := range []string{"its value may have changed since it was sealed to %s",
		"for %s " + lockName + " has it as before rows were bound to this publisher's key", "it is not sealed to %s yet",
		"%s to which it is sealed got another recipient"} {
		if nodes[i] > 0 {
			why = append(why, fmt.Sprintf(says, plain.Count(nodes[i], "node")))
		}
	}
	return strings.Join(why, ", ")
}

// opens reports whether there is what opens a secret, and says what would.
func (x *Sealer) opens(s site.Secret) (bool, string) {
	switch {
	case x.madeUp:
		return true, ""
	case s.Ref != nil:
		return x.Cluster != nil, "publish with --from-cluster, whose kubectl reads " + s.Ref.String()
	case s.Data != nil:
		return x.Identities != nil, "--identity FILE, the age key to which " + s.File + " is encrypted"
	}
	return x.Commands, "its command is run by publish"
}

// value opens a secret, once. Where values are made up they are of a form.
func (x *Sealer) value(ctx context.Context, s site.Secret, is form) (value []byte, err error) {
	if value, ok := x.values[s.Name]; ok {
		return value, nil
	}
	switch {
	case x.madeUp:
		value = makeUp(s.Name, is)
	case s.Ref != nil:
		if value, err = x.Cluster(ctx, *s.Ref); err == nil {
			err = size(value)
		}
	case s.Data != nil:
		value, err = x.Identities.open(s)
	default:
		value, err = run(ctx, s.Command, x.site.Dir(), x.Timeout)
	}
	if err == nil {
		x.values[s.Name] = value
	}
	return value, err
}

// Write writes secrets.lock, where it differs: before anything is published that has what it
// holds, so that a publish that is cut takes the same rows when it is repeated. Rows of nodes
// and secrets that left the site leave it.
func (x *Sealer) Write() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	names := x.site.Secrets().Names()
	for at := range x.lock.rows {
		if !x.site.Fleet().Has(at.node) && x.site.Fleet().WhyLeftOut(at.node) == "" || !slices.Contains(names, at.name) {
			delete(x.lock.rows, at)
		}
	}
	return x.lock.write(x.beside.Lock)
}

// Accepted returns the recipients that were accepted, by node.
func (x *Sealer) Accepted() map[string]Accepted { return x.recipients.Nodes }

// Sealed returns the names of the secrets that are sealed to a node's recipient, sorted.
func (x *Sealer) Sealed(node string) (names []string) {
	to := x.recipients.Nodes[node].Recipient
	x.mu.Lock()
	defer x.mu.Unlock()
	for at, row := range x.lock.rows {
		if at.node == node && row.Recipient == to && to != "" {
			names = append(names, at.name)
		}
	}
	slices.Sort(names)
	return names
}

func (x *Sealer) keyFile() string { return filepath.Join(x.beside.Key, keyName) }

// openKey opens the key by which values are compared, and checks the rows of the lock by it.
func (x *Sealer) openKey() (*macKey, error) {
	key, err := openKey(x.keyFile(), len(x.lock.rows) > 0)
	if err != nil {
		return nil, err
	}
	if x.lock.Key != "" && x.lock.Key != key.id() && len(x.lock.rows) > 0 {
		return nil, cli.WithHint(fmt.Errorf("%s is not the key that %s was made with", key.name, lockName), anotherKey)
	}
	x.lock.Key = key.id()
	for _, row := range x.lock.rows {
		if row.Bound != "" && row.Bound != key.bound(row) {
			return nil, cli.WithHint(fmt.Errorf("read %s: the row of secret %.80q of node %.80q is not as "+
				"this publisher wrote it", lockName, row.Name, row.Node),
				"see in version control who changed it; take the row out, and publish: it is sealed again")
		}
	}
	return key, nil
}

// Mark notes in a plan which secrets were not looked at, and which nodes a publish would seal to.
func (x *Sealer) Mark(p *plan.Plan) {
	p.NotLooked = append(p.NotLooked, x.NotLooked()...)
	for i, n := range p.Nodes {
		if _, accepted := x.Accepted()[n.Name]; accepted {
			p.Nodes[i].NoKey = nil
		}
	}
}
