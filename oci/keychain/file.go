// SPDX-License-Identifier: Apache-2.0

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

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/types"
	"golang.org/x/term"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
)

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
	if err := durable.Write(f.Filename, 0o600, f.SaveToWriter); err != nil {
		return fmt.Errorf("registry credentials: %w", err)
	}
	return nil
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
