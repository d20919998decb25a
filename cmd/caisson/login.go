// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keychain"
	"github.com/caisson-os/caisson/oci/pull"
)

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
