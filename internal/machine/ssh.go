// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Key is a key with which a user logs in, and the file that ssh(1) reads it from.
type Key struct {
	File   string
	Signer ssh.Signer
}

// NewKey makes one, for this machine alone.
func NewKey(file string) (k Key, err error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return k, err
	}
	if k.Signer, err = ssh.NewSignerFromKey(private); err != nil {
		return k, err
	}
	block, err := ssh.MarshalPrivateKey(private, "caisson try")
	if err != nil {
		return k, err
	}
	k.File = file
	return k, os.WriteFile(file, pem.EncodeToMemory(block), 0o600)
}

// Login opens an SSH connection to the machine, and keeps trying until ctx ends or the
// machine does: sshd comes up some time during the boot.
func (m *Machine) Login(ctx context.Context, user string, key ssh.Signer) (*Session, error) {
	config := client(user, key)
	for {
		s, err := dial(ctx, m.ssh, config)
		if err == nil {
			return &Session{client: s, Console: m.Console}, nil
		}
		config.Timeout += 5 * time.Second // a machine beside others may take long for its half
		select {
		case <-time.After(time.Second):
		case <-m.done:
			if ctx.Err() == nil { // else its end ended the machine
				err = ErrEnded
			}
			return nil, fmt.Errorf("log in to %s: %w", m.Name, err)
		case <-ctx.Done():
			return nil, fmt.Errorf("log in to %s: %w", m.Name, err)
		}
	}
}

// Refused reports whether the machine lets a user with a key not in. It keeps trying until
// ctx ends: sshd turns away for a while the clients that it has refused, without a look at the key.
func (m *Machine) Refused(ctx context.Context, user string, key ssh.Signer) (bool, error) {
	for {
		c, err := dial(ctx, m.ssh, client(user, key))
		switch {
		case err == nil:
			return false, c.Close()
		case strings.Contains(err.Error(), "unable to authenticate"):
			return true, nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return false, fmt.Errorf("ask %s whether it lets %s in: %w", m.Name, user, err)
		}
	}
}

func client(user string, key ssh.Signer) *ssh.ClientConfig {
	return &ssh.ClientConfig{
		User:            user,
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), // a diskless node has a new key each boot; it stands on its console
		Timeout:         20 * time.Second,
	}
}

func dial(ctx context.Context, addr string, config *ssh.ClientConfig) (*ssh.Client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	// QEMU accepts before the guest listens, so the banner may never come.
	_ = conn.SetDeadline(time.Now().Add(config.Timeout)) // a dead connection fails at the next use
	c, channels, requests, err := ssh.NewClientConn(conn, addr, config)
	if err != nil {
		_ = conn.Close() // err says what failed
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{}) // a dead connection fails at the next use
	return ssh.NewClient(c, channels, requests), nil
}

// ErrLost is the error of a command with which the connection went: the machine may have started over.
var ErrLost = errors.New("the connection to the machine is lost")

// Session is an open login.
type Session struct {
	Console *Console // of the machine
	client  *ssh.Client
}

// maxOutput is how much of what a command prints is kept, of each stream.
const maxOutput = 8 << 20

// printed keeps the beginning of what a command prints. It takes all of it: a command that
// is not read from stands still. It is not a bytes.Buffer, whose ReadFrom would go round Write.
type printed struct{ text []byte }

func (p *printed) Write(data []byte) (int, error) {
	p.text = append(p.text, data[:min(len(data), maxOutput-len(p.text))]...)
	return len(data), nil
}

func (p *printed) String() string { return strings.TrimSpace(string(p.text)) }

// Run runs a command line and returns its trimmed standard output, the first 8 MiB of it.
// A command that fails is an error with what it said.
func (s *Session) Run(ctx context.Context, command string) (string, error) {
	return s.Send(ctx, command, nil)
}

// Send is [Session.Run] of a command that reads something.
func (s *Session) Send(ctx context.Context, command string, in io.Reader) (string, error) {
	stop := context.AfterFunc(ctx, func() { s.client.Close() }) // what waits below returns the error
	defer stop()
	session, err := s.client.NewSession()
	if err != nil {
		return "", lost(ctx, command, err)
	}
	defer session.Close() // the command has ended
	var out, errs printed
	session.Stdin, session.Stdout, session.Stderr = in, &out, &errs
	err = session.Run(command)
	var exit *ssh.ExitError
	switch {
	case errors.As(err, &exit):
		err = fmt.Errorf("%s: %w: %s", command, err, errs.String())
	case err != nil:
		err = lost(ctx, command, err)
	}
	return out.String(), err
}

// lost is the error of a command that did not end: ctx closes the connection, too.
func lost(ctx context.Context, command string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", command, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w: %w", command, ErrLost, err)
}

// Close ends the login.
func (s *Session) Close() error { return s.client.Close() }
