// SPDX-License-Identifier: Apache-2.0

package keychain

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"

	"github.com/caisson-os/caisson/internal/ownfiles"
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
