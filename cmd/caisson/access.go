// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keychain"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
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
	if parsed, err := oci.ParseRef(ref); err == nil && parsed.IsLayout() && foreign(parsed.Layout) {
		return nil, cli.Usage("name an empty or a new directory", "%s is not an OCI layout, and not empty", ref)
	}
	return registry.Open(ref, o)
}

// existing opens what is published at ref. It makes no layout: where none is,
// nothing can be read, and the name is likely a wrong one.
func (x *access) existing(ref string) (*registry.Registry, error) {
	if parsed, err := oci.ParseRef(ref); err == nil && parsed.IsLayout() {
		if _, err := os.Stat(filepath.Join(parsed.Layout, "oci-layout")); errors.Is(err, fs.ErrNotExist) {
			if dir := layoutAbove(parsed.Layout); dir != "" {
				return nil, cli.Usage("oci:"+dir+" is one: a repository or a tag in it is not part of its name", "%s is not an OCI layout", ref)
			}
			return nil, cli.Usage("'caisson build' makes one with --to "+ref+
				", or 'caisson publish' for a site without a layer", "%s is not an OCI layout", ref)
		}
	}
	return x.open(ref)
}

// layoutAbove returns the layout that a name goes on from, as in out/node:node1; ""
// when there is none.
func layoutAbove(name string) string {
	for dir := filepath.Dir(name); dir != "." && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "oci-layout")); err == nil {
			return dir
		}
	}
	return ""
}

// foreign reports whether a directory holds something else than a layout: a layout is
// not made among other files.
func foreign(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, "oci-layout")); err == nil {
		return false
	}
	files, err := os.ReadDir(dir)
	return err == nil && len(files) > 0
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
		host, err := hostOf(args[0])
		if err != nil {
			return err
		}
		if l, err = askLogin(l.User, fromStdin); err != nil {
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
		host, err := hostOf(args[0])
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

// hostOf returns the host[:port] of a registry; its prefix may follow.
func hostOf(name string) (string, error) {
	ref, err := oci.ParseRef(name)
	if err != nil || ref.IsLayout() {
		return "", cli.Usage("as in registry.example.org:5000", "%q is not a registry", name)
	}
	if ref.Host == "docker.io" {
		return "index.docker.io", nil
	}
	return ref.Host, nil
}

// askLogin completes a user's name and password, from standard input or a terminal.
func askLogin(user string, fromStdin bool) (l pull.Login, err error) {
	terminal := term.IsTerminal(int(os.Stdin.Fd()))
	switch {
	case !terminal && (user == "" || !fromStdin):
		return l, cli.Usage("give --username, and --password-stdin with the password on standard input", "standard input is not a terminal")
	case user == "":
		fmt.Fprint(os.Stderr, "user: ")
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		if err != nil {
			return l, fmt.Errorf("read user: %w", err)
		}
		user = strings.TrimSpace(line)
	}
	var password []byte
	if fromStdin {
		password, err = io.ReadAll(io.LimitReader(os.Stdin, 64<<10))
	} else {
		fmt.Fprintf(os.Stderr, "password of %s: ", user)
		password, err = term.ReadPassword(int(os.Stdin.Fd()))
		fmt.Fprintln(os.Stderr)
	}
	if err != nil {
		return l, fmt.Errorf("read password: %w", err)
	}
	l = pull.Login{User: user, Password: strings.TrimRight(string(password), "\r\n")}
	if l.User == "" || l.Password == "" {
		return l, cli.Usage("both are needed", "the user or the password is empty")
	}
	return l, nil
}
