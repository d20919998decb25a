// SPDX-License-Identifier: Apache-2.0

package keychain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/types"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/oci/pull"
)

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
