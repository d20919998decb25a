// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
)

// registryFlags say how a registry is reached. Every verb that talks to one has
// the same.
type registryFlags struct {
	plainHTTP bool
	cas       []string
	authFile  string
	certFile  string
	keyFile   string
}

func (f *registryFlags) bind(c *cobra.Command) {
	c.Flags().BoolVar(&f.plainHTTP, "plain-http", false, "talk HTTP to the registry; what is signed stays signed")
	c.Flags().StringArrayVar(&f.cas, "ca", nil, "PEM file of the only authorities to trust for the registry")
	c.Flags().StringVar(&f.authFile, "auth-file", "", "registry credentials, in the form of docker's config.json")
	c.Flags().StringVar(&f.certFile, "client-cert", "", "client certificate for the registry")
	c.Flags().StringVar(&f.keyFile, "client-key", "", "key of the client certificate")
}

// options reads the files that the flags name.
func (f *registryFlags) options() (oci.Options, error) {
	o := oci.Options{PlainHTTP: f.plainHTTP, AuthFile: f.authFile, CertFile: f.certFile, KeyFile: f.keyFile, UserAgent: "caisson/" + version}
	for _, name := range f.cas {
		pem, err := os.ReadFile(name)
		if err != nil {
			return o, fmt.Errorf("certificate authority: %w", err)
		}
		o.CAs = append(o.CAs, string(pem))
	}
	return o, nil
}

// open opens a place for artifacts.
func (f *registryFlags) open(ref string) (*registry.Registry, error) {
	if ref == "" {
		return nil, cli.Usage("host[:port]/prefix, or oci:DIR", "no registry is named")
	}
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	return registry.Open(ref, o)
}

// passphraseEnv holds the passphrase of a key file.
const passphraseEnv = "CAISSON_PASSPHRASE"

// loadKey reads a private key file. The passphrase comes from the environment;
// an empty one is a passphrase too.
func loadKey(name string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	key, err := sign.ParsePrivate(text, []byte(os.Getenv(passphraseEnv)))
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("key %s: %w", name, err), "set "+passphraseEnv+" to the key's passphrase")
	}
	return key, nil
}
