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
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker-credential-helpers/client"
	"github.com/docker/docker-credential-helpers/credentials"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/program"
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
