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
	"context"
	"errors"
	"os"
	"strings"
	"sync"

	"github.com/caisson-os/caisson/internal/cli"
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
		return l, false, cli.Usage("the three belong together: host[:port], user and password", "%s, %s and %s are not all set", envHost, envUser, envPassword)
	}
	if named != host {
		return l, false, nil
	}
	return pull.Login{User: user, Password: password}, true, nil
}
