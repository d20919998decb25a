// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec/site"
)

// trustFlags say whom a verb trusts that is given a registry and not a site.
type trustFlags struct {
	site      []string
	keys      []string
	threshold int

	loaded *site.Site // that of --site
}

func (t *trustFlags) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&t.site, "site", nil, "trust the keys of the site in `FILE`; several are merged")
	f.StringArrayVar(&t.keys, "trust", nil, "trust this operator's public key `FILE`; several for a threshold")
	f.IntVar(&t.threshold, "threshold", 0, "how many of the --trust keys must have signed (all when absent)")
}

// said reports whether the command line says whom to trust.
func (t *trustFlags) said() bool { return len(t.site) > 0 || len(t.keys) > 0 || t.threshold != 0 }

// nobody reports whether no key is named to verify with.
func (t *trustFlags) nobody() bool { return len(t.site)+len(t.keys) == 0 }

// policy returns whom to trust, nil when nothing was said.
func (t *trustFlags) policy(a *app) (*publish.Policy, error) {
	switch {
	case t.threshold != 0 && len(t.keys) == 0:
		return nil, cli.Usage("a site says its own in trust.threshold", "--threshold counts keys of --trust")
	case len(t.site) > 0 && len(t.keys) > 0:
		return nil, cli.Usage("", "give either --site or --trust")
	case len(t.site) > 0:
		s, err := t.load(a)
		if err != nil {
			return nil, err
		}
		p, err := policy.Site(s, "")
		return &p, err
	case len(t.keys) == 0:
		return nil, nil
	}
	return policy.Keys(t.keys, t.threshold)
}

// load reads the site once, nil where none is named: its warnings are said once.
func (t *trustFlags) load(a *app) (s *site.Site, err error) {
	if t.loaded == nil && len(t.site) > 0 {
		t.loaded, err = a.loadNamed(t.site...)
	}
	return t.loaded, err
}

// operators are the files with the operators' public keys, none without a site.
func (t *trustFlags) operators(a *app) ([]string, error) {
	s, err := t.load(a)
	if s == nil || err != nil {
		return nil, err
	}
	return s.Trust().Operator, nil
}

// names returns the names of the operators' keys by id, after their files.
func (t *trustFlags) names(a *app) (map[string]string, error) {
	files, err := t.operators(a)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, name := range slices.Concat(files, t.keys) {
		list, err := keys.Publics([]string{name})
		if err != nil {
			return nil, err
		}
		for _, k := range list {
			names[k.ID()] = strings.TrimSuffix(filepath.Base(name), ".pub")
		}
	}
	return names, nil
}

// recipients are those of the site's nodes that have an accepted one, nil without a site.
func (t *trustFlags) recipients(a *app) (map[string]string, error) {
	s, err := t.load(a)
	if s == nil || err != nil {
		return nil, err
	}
	r, err := seal.ReadRecipients(s.Dir())
	if err != nil {
		return nil, err
	}
	accepted := map[string]string{}
	for node, one := range r.Nodes {
		accepted[node] = one.Recipient
	}
	return accepted, nil
}

// memoryFlags say what a publisher remembers.
type memoryFlags struct {
	remember      string
	acceptExpired bool
	ignoreIntent  string
	wait          time.Duration
}

// flags are those of the verbs that publish.
func (m *memoryFlags) flags(f *pflag.FlagSet) {
	m.looking(f)
	m.waiting(f)
}

// waiting says how long other publishers are waited for.
func (m *memoryFlags) waiting(f *pflag.FlagSet) {
	f.DurationVar(&m.wait, "wait", 0, "wait at most so long for other publishers; without it another publisher is an error")
}

// looking are the flags of a verb that changes nothing.
func (m *memoryFlags) looking(f *pflag.FlagSet) {
	f.StringVar(&m.remember, "remember", "", "`FILE` that remembers what was published, to keep under version control "+
		"(caisson.memory beside the site when empty)")
	f.BoolVar(&m.acceptExpired, "accept-expired", false,
		"use what is published although it has expired; confirm first that it is not a replay")
	f.StringVar(&m.ignoreIntent, "ignore-intent", "", "ignore the intent `TAG` of a publisher that was killed")
}

// open opens the memory. Without a site and --remember there is none.
func (m *memoryFlags) open(a *app, site []string, signs bool) (*publish.Memory, error) {
	name := m.remember
	if name == "" && len(site) > 0 {
		name = memoryName(site[0])
	}
	if name == "" {
		if signs {
			a.say("nothing is remembered: --site or --remember would refuse what is older than last time")
		}
		return nil, nil
	}
	return publish.OpenMemory(name)
}

// memoryName returns the name of the memory beside a site.
func memoryName(site string) string { return filepath.Join(filepath.Dir(site), "caisson.memory") }

// publisher returns a publisher that trusts and remembers as the flags say.
func (a *app) publisher(r *registry.Registry, by []crypto.Signer, t *trustFlags, m memoryFlags) (*publish.Publisher, error) {
	policy, err := t.policy(a)
	if err != nil {
		return nil, err
	}
	file, err := m.open(a, t.site, by != nil)
	if err != nil {
		return nil, err
	}
	if err := elsewhere(r.Ref(), file); err != nil {
		return nil, err
	}
	return &publish.Publisher{Registry: r, Signers: by, Now: now(), Clock: now, Say: a.say, Trust: policy, Memory: file,
		AcceptExpired: m.acceptExpired, IgnoreIntent: m.ignoreIntent, Author: self(), Wait: m.wait}, nil
}

// elsewhere refuses a directory that is not here and that something was published to: its name
// is relative, and this is another directory.
func elsewhere(ref oci.Ref, m *publish.Memory) error {
	if m == nil || !ref.IsLayout() || filepath.IsAbs(ref.Layout) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(ref.Layout, "index.json")); !errors.Is(err, fs.ErrNotExist) {
		return nil // what is wrong with it is said by who reads it
	}
	if seen, known := m.At(ref.String()); known && seen.Generation > 0 {
		return cli.Usage("go to the directory where it was published from: oci:DIR is relative to the current one",
			"%s held generation %d of fleet %q, and is not below this directory", ref, seen.Generation, seen.Fleet)
	}
	return nil
}

// now is the time of issue, in whole seconds.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// signers are the flags that say who signs.
type signers struct {
	keys       []string
	commands   []string
	passphrase keys.Passphrase
	dry        bool
}

func (s *signers) flags(f *pflag.FlagSet) {
	s.keyFlags(f)
	dryFlag(f, &s.dry)
}

// keyFlags are those of a verb that signs in any case.
func (s *signers) keyFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&s.keys, "key", nil, "sign with the private key in `FILE`, env:NAME, fd:N or command:CMD; several for a threshold")
	passphraseFlag(f, &s.passphrase)
	f.StringArrayVar(&s.commands, "signer-command", nil, "sign with the program `CMD`, for keys in hardware or a KMS: --key command:CMD")
}

// dryFlag adds a look at what a verb would do.
func dryFlag(f *pflag.FlagSet, dry *bool) {
	f.BoolVarP(dry, "dry-run", "n", false, "say what would be done, node by node, and write nothing; it takes no key")
}

// passphraseFlag adds where the passphrase of encrypted keys comes from.
func passphraseFlag(f *pflag.FlagSet, p *keys.Passphrase) {
	f.StringVar(&p.Source, "passphrase-from", "", "read the passphrase of encrypted keys from `SOURCE`: a file, env:NAME or fd:N")
}

// load returns the signers, at least one. Where none is named, those beside the
// site's public keys sign. A dry run takes those that are named, as whom to trust.
func (s *signers) load(a *app, public []string) ([]crypto.Signer, error) {
	if s.dry && len(s.keys)+len(s.commands) == 0 {
		return nil, nil
	}
	if len(s.keys)+len(s.commands) == 0 {
		if s.keys = keys.Beside(public); len(s.keys) > 0 {
			a.say("signing with %s", strings.Join(s.keys, ", "))
		}
	}
	sources := slices.Clone(s.keys)
	for _, command := range s.commands {
		sources = append(sources, keys.Command(command))
	}
	if len(sources) == 0 {
		return nil, cli.Usage("caisson keys generate makes keys", "no key to sign with: give --key or --signer-command")
	}
	return keys.Signers(sources, &s.passphrase)
}
