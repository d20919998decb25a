// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net"
	"os"
	"strconv"
	"strings"
)

// Address returns an address by which a browser reaches a service without a proxy: by the
// first name that it was told, or this machine's where it listens on all addresses.
func Address(at *net.TCPAddr, tls bool, told []string) string {
	scheme, name := "http", at.IP.String()
	if tls {
		scheme = "https"
	}
	switch {
	case at.IP.IsLoopback():
	case len(told) > 0:
		name = told[0]
	case at.IP.IsUnspecified():
		name = Names(at, nil)[0]
	}
	if _, _, err := net.SplitHostPort(name); err == nil { // it was told with its port
		return scheme + "://" + name
	}
	return scheme + "://" + net.JoinHostPort(strings.Trim(name, "[]"), strconv.Itoa(at.Port))
}

// Names returns the names by which a service is reached: what it was told, the address
// that it listens on, and on a loopback the names of that.
func Names(at *net.TCPAddr, told []string) []string {
	names := append([]string{}, told...)
	if at.IP.IsUnspecified() {
		if host, err := os.Hostname(); err == nil {
			names = append(names, strings.ToLower(host))
		}
		return append(names, "localhost", "127.0.0.1", "::1")
	}
	names = append(names, at.IP.String())
	if at.IP.IsLoopback() {
		names = append(names, "localhost", "127.0.0.1", "::1")
	}
	return names
}
