// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keychain"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec/site"
)

// access says how a verb reaches a registry.
type access struct {
	plainHTTP bool
	caFiles   []string
	cert, key string
	auth      string
	say       func(format string, args ...any) // gets warnings; nil drops them
}

// flags adds what every verb with a REF understands.
func (x *access) flags(a *app, f *pflag.FlagSet) {
	x.wayFlags(a, f)
	f.StringVar(&x.auth, "auth-file", "", "registry credentials `FILE` in the form of docker's config.json, mode 0600, "+
		"in place of those of docker, podman and the environment")
}

// wayFlags adds how a registry is reached, without by whom.
func (x *access) wayFlags(a *app, f *pflag.FlagSet) {
	x.say = a.say
	f.BoolVar(&x.plainHTTP, "plain-http", false, "use HTTP without TLS for the registry (default on loopback without "+
		"--ca); signatures are verified all the same")
	f.StringArrayVar(&x.caFiles, "ca", nil, "trust only the PEM certificate authorities in `FILE` for the registry, by "+
		"TLS on the loopback, too")
	f.StringVar(&x.cert, "client-cert", "", "client certificate `FILE` for the registry")
	f.StringVar(&x.key, "client-key", "", "private key `FILE` of the client certificate, mode 0600")
}

// options are for a registry or a source at ref.
func (x *access) options(ref string) (pull.Options, error) {
	logins := &keychain.Chain{Say: x.say}
	if parsed, err := oci.ParseRef(ref); err == nil {
		logins.Prefix = parsed.Prefix
	}
	o := pull.Options{
		PlainHTTP: x.plainHTTP || loopback(ref) && len(x.caFiles) == 0,
		CertFile:  x.cert, KeyFile: x.key, AuthFile: x.auth, Logins: logins.Find,
		UserAgent: "caisson/" + version,
	}
	for _, name := range x.caFiles {
		pem, err := os.ReadFile(name)
		if err != nil {
			return o, fmt.Errorf("certificate authority: %w", err)
		}
		o.CAs = append(o.CAs, string(pem))
	}
	return o, nil
}

// open opens the registry at ref for reading and writing.
func (x *access) open(ref string) (*registry.Registry, error) {
	if ref == "" {
		return nil, cli.Usage("host[:port]/prefix, or oci:DIR", "no registry is named")
	}
	o, err := x.options(ref)
	if err != nil {
		return nil, err
	}
	return registry.OpenNamed(ref, o)
}

// existing opens what is published at ref. It makes no layout: where none is,
// nothing can be read, and the name is likely a wrong one.
func (x *access) existing(ref string) (*registry.Registry, error) {
	if err := registry.CheckExists(ref); err != nil {
		return nil, err
	}
	return x.open(ref)
}

// loopback reports whether ref never leaves this machine.
func loopback(ref string) bool {
	r, err := oci.ParseRef(ref)
	return err == nil && r.Loopback()
}

// noKey is the note of verbs that show layers and verify none.
const noKey = "no --key: who released this is not verified, whoever can push chose it"

const releaseKeyHelp = "public key `FILE` that must have released what is read; several are possible"

// What nothing would be verified with is refused: its result would be taken for verified.
var (
	errReleaseKey = cli.Usage("--trust names an operator's public key, --site the site",
		"--key names a release key's public half, which signs layers: what is published for nodes is not verified with it")
	errOperators = cli.Usage("--key names a release key's public half",
		"--site and --trust name operators, who sign what nodes have: a layer is not verified with them")
)

// openLayers opens what LAYER names: one layer, or all variants of a version.
func openLayers(ctx context.Context, reach *access, name string) ([]release.Layer, error) {
	ref, version, err := release.ParseName(name)
	if err != nil {
		return nil, err
	}
	reg, err := reach.existing(ref)
	if err != nil {
		return nil, err
	}
	return release.Open(ctx, reg, version)
}

// loggedIn is the output of login and logout -o json.
type loggedIn struct {
	Host   string `json:"host"`
	Stored string `json:"stored"` // file or program that keeps the credentials, or kept them
}

func (a *app) loginCommand() *cobra.Command {
	var reach access
	var l pull.Login
	var fromStdin bool
	c := verb("login", func(c *cobra.Command, args []string) (err error) {
		host, err := keychain.HostOf(args[0])
		if err != nil {
			return err
		}
		if l, err = keychain.Ask(l.User, fromStdin); err != nil {
			return err
		}
		o, err := reach.options(args[0])
		if err != nil {
			return err
		}
		o.Logins = func(context.Context, string) (pull.Login, error) { return l, nil }
		asked, err := pull.Ping(c.Context(), host, o)
		if err != nil {
			return err
		}
		if !asked {
			a.say("warning: %s asked for no credentials, so these are not verified", host)
		}
		where, err := keychain.Save(c.Context(), host, l)
		if err != nil {
			return err
		}
		return a.stored(loggedIn{host, where}, "the credentials for %s are in %s")
	})
	c.Flags().StringVarP(&l.User, "username", "u", "", "user `NAME` (asked for on a terminal)")
	c.Flags().BoolVar(&fromStdin, "password-stdin", false, "read the password from standard input (asked for on a terminal)")
	reach.wayFlags(a, c.Flags())
	return c
}

func (a *app) logoutCommand() *cobra.Command {
	return verb("logout", func(c *cobra.Command, args []string) error {
		host, err := keychain.HostOf(args[0])
		if err != nil {
			return err
		}
		where, found, err := keychain.Forget(c.Context(), host)
		if err != nil {
			return err
		}
		if !found {
			return cli.WithHint(fmt.Errorf("%s has no credentials for %s", where, host),
				"'caisson login --help' lists the other places where they may be")
		}
		return a.stored(loggedIn{host, where}, "the credentials for %s are no longer in %s")
	})
}

func (a *app) stored(l loggedIn, format string) error {
	return a.show(l, func() { a.say(format, l.Host, l.Stored) })
}

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
func (t *trustFlags) policy(a *app) (*published.Policy, error) {
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
	return policy.Names(slices.Concat(files, t.keys))
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
	return r.Accepted(), nil
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
func (m *memoryFlags) open(a *app, site []string, signs bool) (*published.Memory, error) {
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
	return published.OpenMemory(name)
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
	if err := file.Elsewhere(r.Ref()); err != nil {
		return nil, err
	}
	return &publish.Publisher{Reader: published.Reader{Registry: r, Signers: by, Now: now(), Say: a.say, Trust: policy, Memory: file,
		AcceptExpired: m.acceptExpired},
		Clock: now, IgnoreIntent: m.ignoreIntent, Author: self(), Wait: m.wait}, nil
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
