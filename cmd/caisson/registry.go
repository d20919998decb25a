// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// access is how a verb reaches a registry.
type access struct {
	plainHTTP bool
	caFiles   []string
	cert, key string
	auth      string
}

// flags adds what every verb with a REF understands.
func (x *access) flags(f *pflag.FlagSet) {
	f.BoolVar(&x.plainHTTP, "plain-http", false, "talk HTTP to the registry, as is done on this machine's loopback anyway; what is signed stays signed")
	f.StringArrayVar(&x.caFiles, "ca", nil, "trust only the PEM certificate authorities in `FILE` for the registry")
	f.StringVar(&x.cert, "client-cert", "", "client certificate `FILE` for the registry")
	f.StringVar(&x.key, "client-key", "", "private key `FILE` of the client certificate, mode 0600")
	f.StringVar(&x.auth, "auth-file", "", "registry credentials `FILE` in the form of docker's config.json, mode 0600")
}

// options are for a registry or a source at ref.
func (x *access) options(ref string) (oci.Options, error) {
	o := oci.Options{
		PlainHTTP: x.plainHTTP || loopback(ref),
		CertFile:  x.cert, KeyFile: x.key, AuthFile: x.auth,
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
	return registry.Open(ref, o)
}

// loopback says whether ref never leaves this machine.
func loopback(ref string) bool {
	host, _, _ := strings.Cut(ref, "/")
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
