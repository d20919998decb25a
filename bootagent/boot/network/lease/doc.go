// SPDX-License-Identifier: Apache-2.0

// Package lease asks the servers of a link for addresses, routes and name servers, and hears
// what its routers advertise. It configures nothing. Only bootagent/boot/network imports it.
package lease
