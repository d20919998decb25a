// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/url"
	"strings"

	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/oci"
)

// reachedBy takes the URL by which a proxy is reached that stands before the service.
func reachedBy(text string, o *server.Options, h *httpserver.Options) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	const as = "as in --url https://fleet.example.org"
	switch {
	case err != nil:
		return cli.Usage(as, "--url: %w", err)
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "", strings.TrimRight(u.Path, "/") != "", u.User != nil, u.RawQuery != "", u.Fragment != "":
		return cli.Usage(as, "--url %q is not https:// or http:// with a name and no more", text)
	case strings.Trim(strings.ToLower(u.Host), "abcdefghijklmnopqrstuvwxyz0123456789.-:[]") != "":
		return cli.Usage(as, "--url %q has a name that browsers do not send", text) // and a page shows it within commands for a shell
	case o.Tokens == nil && !(oci.Ref{Host: u.Host}).Loopback():
		return cli.Usage("give --tokens", "without tokens the service is for a loopback only, and --url says that others reach it")
	}
	o.URL, o.TLS = u.Scheme+"://"+u.Host, u.Scheme == "https"
	o.Hosts = append(o.Hosts, u.Hostname())
	if h.PerClient == 0 {
		h.PerClient = h.Most() // all come from the proxy's address
	}
	return nil
}
