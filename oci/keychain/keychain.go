// SPDX-License-Identifier: Apache-2.0

// Package keychain finds and stores registry credentials where people at a
// workstation have them: in the environment, in docker's config.json and podman's
// auth.json, and with the docker-credential-* programs that those files name.
//
// It does not log in, which is oci/pull: that sends what is found here to one host
// and port and nowhere else. It follows containers-auth.json(5) and docker-login(1).
// Only cmd/caisson and builder/release, which people run, import it; a node has one file of its own and runs no
// programs for it.
package keychain

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/types"
	"github.com/docker/docker-credential-helpers/client"
	"github.com/docker/docker-credential-helpers/credentials"
	"golang.org/x/term"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/program"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
)

// Chain finds credentials, once for each host. The zero value looks for those of a
// whole host. It may be used by several goroutines.
type Chain struct {
	Prefix string                           // path below the host, for which podman may keep other credentials
	Say    func(format string, args ...any) // gets warnings; nil drops them

	mu    sync.Mutex
	found map[string]pull.Login // by host: programs may ask a person
}

// Find returns the credentials for host[:port]: those of the environment, else
// those of the first file that knows the host. None at all is the zero Login.
func (c *Chain) Find(ctx context.Context, host string) (pull.Login, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, ok := c.found[host]; ok {
		return l, nil
	}
	l, err := c.find(ctx, host)
	if err != nil {
		return pull.Login{}, err
	}
	if c.found == nil {
		c.found = map[string]pull.Login{}
	}
	c.found[host] = l
	return l, nil
}

func (c *Chain) find(ctx context.Context, host string) (pull.Login, error) {
	if l, ok, err := fromEnvironment(host); ok || err != nil {
		return l, err
	}
	for _, name := range files() {
		if name == "" {
			continue
		}
		f, err := c.read(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return pull.Login{}, err
		}
		if l, ok, err := c.in(ctx, f, host); ok || err != nil {
			return l, err
		}
	}
	return pull.Login{}, nil
}

// The environment's three variables. A password without a host would go to
// whichever registry is named next, a base image's for example.
const (
	envHost     = "CAISSON_REGISTRY"
	envUser     = "CAISSON_REGISTRY_USER"
	envPassword = "CAISSON_REGISTRY_PASSWORD"
)

func fromEnvironment(host string) (l pull.Login, ok bool, err error) {
	user, password := os.Getenv(envUser), os.Getenv(envPassword)
	if user == "" && password == "" {
		return l, false, nil
	}
	named, _, _ := strings.Cut(os.Getenv(envHost), "/") // a reference is as good
	if user == "" || password == "" || named == "" {
		return l, false, cli.Usage("the three belong together: host[:port], user and password",
			"%s, %s and %s are not all set", envHost, envUser, envPassword)
	}
	if named != host {
		return l, false, nil
	}
	return pull.Login{User: user, Password: password}, true, nil
}

// patience is how long a program may take: it may ask a person for a PIN.
const patience = 2 * time.Minute

// maxAnswer caps what is read of an answer, in bytes.
const maxAnswer = 64 << 10

// byToken is the user by which a program says that the secret is an identity token.
const byToken = "<token>"

// ask asks a program for the credentials of a host. What it answers for another
// host is refused.
func ask(ctx context.Context, helper, host string) (l pull.Login, ok bool, err error) {
	var got *credentials.Credentials
	err = run(ctx, helper, func(p client.ProgramFunc) (err error) {
		got, err = client.Get(p, serverOf(host))
		return err
	})
	if credentials.IsErrCredentialsNotFound(err) {
		return l, false, nil
	}
	if err != nil {
		return l, false, err
	}
	if of, _, _ := strings.Cut(placeOf(got.ServerURL), "/"); of != host {
		return l, false, fmt.Errorf("docker-credential-%s: asked for %s, it answers for %.80q", helper, host, of)
	}
	switch {
	case got.Secret == "":
		return l, false, nil
	case got.Username == byToken:
		return pull.Login{Token: got.Secret}, true, nil
	}
	return pull.Login{User: got.Username, Password: got.Secret}, true, nil
}

// keep has a program keep credentials, drop has it forget them.
func keep(ctx context.Context, program, host string, l pull.Login) error {
	c := &credentials.Credentials{ServerURL: serverOf(host), Username: l.User, Secret: l.Password}
	return run(ctx, program, func(p client.ProgramFunc) error { return client.Store(p, c) })
}

func drop(ctx context.Context, program, host string) error {
	return run(ctx, program, func(p client.ProgramFunc) error { return client.Erase(p, serverOf(host)) })
}

// run lets do run a program within the patience, and says which it was when it
// fails.
func run(ctx context.Context, name string, do func(client.ProgramFunc) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	name = "docker-credential-" + name
	if strings.ContainsRune(name, os.PathSeparator) { // it is found on PATH, wherever the file says
		return fmt.Errorf("registry credentials: %.80q is not the name of a program", name)
	}
	err := do(func(args ...string) client.Program {
		return &helper{ctx: ctx, argv: slices.Concat([]string{name}, args)}
	})
	switch {
	case err == nil || credentials.IsErrCredentialsNotFound(err):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	return cli.WithHint(fmt.Errorf("%s: %w", name, err), "docker's config.json names it, in credHelpers or credsStore")
}

// helper is a program as the client of docker-credential-helpers wants it.
type helper struct {
	ctx  context.Context
	argv []string
	in   io.Reader
}

func (h *helper) Input(in io.Reader) { h.in = in }

// Output returns what the program printed, where it failed, too: so it says that it has nothing.
func (h *helper) Output() ([]byte, error) {
	in, err := io.ReadAll(h.in)
	if err != nil {
		return nil, err
	}
	out, err := program.Run(h.ctx, program.Command{Argv: h.argv, Input: in, Most: maxAnswer})
	if failed := (*program.Failed)(nil); errors.As(err, &failed) {
		out = failed.Printed
	}
	return out, err
}

// files returns where credentials may be, docker's file first, as crane has it. What
// the environment does not say is "".
func files() []string {
	return []string{
		dockerName(),
		os.Getenv("REGISTRY_AUTH_FILE"),
		below(os.Getenv("XDG_RUNTIME_DIR"), "containers/auth.json"),
		cmp.Or(below(os.Getenv("XDG_CONFIG_HOME"), "containers/auth.json"), below(os.Getenv("HOME"), ".config/containers/auth.json")),
	}
}

// dockerName returns the name of docker's config.json.
func dockerName() string {
	return cmp.Or(below(os.Getenv("DOCKER_CONFIG"), "config.json"), below(os.Getenv("HOME"), ".docker/config.json"))
}

// below returns a file below a directory, "" without one.
func below(dir, name string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// read reads a file with credentials. One that others can write to is refused: it
// names programs that are run. One that others can read gets a warning only.
func (c *Chain) read(name string) (*configfile.ConfigFile, error) {
	data, readable, err := ownfiles.ReadConfig(name)
	if err != nil {
		return nil, fmt.Errorf("registry credentials: %w", err)
	}
	f, err := config.LoadFromReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("registry credentials: %s: %w", name, err)
	}
	if readable && c.Say != nil && holdsPassword(f) {
		c.Say("warning: %s holds passwords, and others can read it: chmod 600 %s", name, name)
	}
	f.Filename = name
	return f, nil
}

func holdsPassword(f *configfile.ConfigFile) bool {
	for _, a := range f.AuthConfigs {
		if a.Password != "" || a.IdentityToken != "" {
			return true
		}
	}
	return false
}

// in looks for a host in one file: with the program that the file names for it,
// then in the file itself, longest prefix first.
func (c *Chain) in(ctx context.Context, f *configfile.ConfigFile, host string) (l pull.Login, ok bool, err error) {
	if program := programFor(f, host); program != "" {
		l, ok, err = ask(ctx, program, host)
		if ok || err != nil {
			return l, ok, err
		}
	}
	known := map[string]string{} // place → key in the file
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(f.AuthConfigs))) {
		known[placeOf(key)] = key // of two spellings, the one without a scheme sorts first and counts
	}
	for at := strings.TrimSuffix(host+"/"+c.Prefix, "/"); ; {
		if key, found := known[at]; found {
			if a := f.AuthConfigs[key]; a.Username != "" || a.IdentityToken != "" {
				return pull.Login{User: a.Username, Password: a.Password, Token: a.IdentityToken}, true, nil
			}
		}
		i := strings.LastIndexByte(at, '/')
		if i < 0 {
			return l, false, nil
		}
		at = at[:i]
	}
}

// programFor returns the program that keeps the credentials of a host, without its
// prefix docker-credential-, or "".
func programFor(f *configfile.ConfigFile, host string) string {
	return cmp.Or(f.CredentialHelpers[host], f.CredentialHelpers[serverOf(host)], f.CredentialsStore)
}

// hub is Docker Hub, which files and programs know by an address of its own.
const (
	hub       = "index.docker.io"
	hubServer = "https://index.docker.io/v1/"
)

// serverOf returns the name by which files and programs know a host.
func serverOf(host string) string {
	if host == hub {
		return hubServer
	}
	return host
}

// placeOf returns host[:port]/prefix of a key, which may be a URL of old.
func placeOf(key string) string {
	place := key
	if _, rest, isURL := strings.Cut(key, "://"); isURL {
		place = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(rest, "/"), "/v1"), "/v2")
	}
	if place = strings.TrimSuffix(place, "/"); place == "docker.io" {
		return hub
	}
	return place
}

// Save stores a user and password for host[:port] where docker and crane look: with
// the program that docker's config.json names, else in that file. It returns where
// that is.
func Save(ctx context.Context, host string, l pull.Login) (where string, err error) {
	f, err := dockerFile()
	if err != nil {
		return "", err
	}
	if program := programFor(f, host); program != "" {
		return "docker-credential-" + program, keep(ctx, program, host, l)
	}
	f.GetAuthConfigs()[serverOf(host)] = types.AuthConfig{Username: l.User, Password: l.Password}
	return f.Filename, write(f)
}

// Forget removes the credentials for host[:port] from where [Save] stores them, and
// reports whether there were any.
func Forget(ctx context.Context, host string) (where string, found bool, err error) {
	f, err := dockerFile()
	if err != nil {
		return "", false, err
	}
	if program := programFor(f, host); program != "" {
		where = "docker-credential-" + program
		if _, found, err = ask(ctx, program, host); err == nil && found {
			err = drop(ctx, program, host)
		}
		if found || err != nil {
			return where, found, err
		}
	}
	for key := range f.AuthConfigs {
		if placeOf(key) == host {
			delete(f.AuthConfigs, key)
			found = true
		}
	}
	if !found {
		return f.Filename, false, nil
	}
	return f.Filename, true, write(f)
}

// dockerFile reads docker's config.json, which need not be there yet.
func dockerFile() (*configfile.ConfigFile, error) {
	name := dockerName()
	if name == "" {
		return nil, errors.New("no place for registry credentials: neither HOME nor DOCKER_CONFIG is set")
	}
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real // the link stays
	}
	f, err := new(Chain).read(name)
	if errors.Is(err, os.ErrNotExist) {
		f, err = configfile.New(name), nil
	}
	return f, err
}

func write(f *configfile.ConfigFile) error {
	if err := os.MkdirAll(filepath.Dir(f.Filename), 0o700); err != nil {
		return fmt.Errorf("registry credentials: %w", err)
	}
	return fault.In(durable.Write(f.Filename, 0o600, f.SaveToWriter), "registry credentials")
}

// HostOf returns the host[:port] of a registry; its prefix may follow.
func HostOf(name string) (string, error) {
	ref, err := oci.ParseRef(name)
	if err != nil || ref.IsLayout() {
		return "", cli.Usage("as in registry.example.org:5000", "%q is not a registry", name)
	}
	if ref.Host == "docker.io" {
		return "index.docker.io", nil
	}
	return ref.Host, nil
}

// Ask completes a user's name and password, from standard input or a terminal.
func Ask(user string, fromStdin bool) (l pull.Login, err error) {
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
