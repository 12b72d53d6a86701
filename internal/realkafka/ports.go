package realkafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
)

// Ports are taken from below the ranges that systems give to outgoing
// connections. From within, a client that dials the address of a broker that is
// restarting could be given that very port, be connected to itself and keep the
// broker from ever listening there again.
const (
	minPort = 20000
	maxPort = 32000
)

// errPortTaken tells that another process was quicker to use a port.
var errPortTaken = errors.New("a port was taken meanwhile")

// ports are the addresses of one broker. It keeps them over restarts, as its
// clients know them.
type ports struct {
	broker     string
	controller string
}

func freePorts() (ports, error) {
	broker, err := freeAddress("")
	if err != nil {
		return ports{}, err
	}
	controller, err := freeAddress(broker)
	if err != nil {
		return ports{}, err
	}
	return ports{broker: broker, controller: controller}, nil
}

// freeAddress returns a loopback address other than the given one that nobody
// listens on. Somebody may before the broker does: see [errPortTaken].
func freeAddress(other string) (string, error) {
	var last error
	for range 100 {
		port := minPort + rand.IntN(maxPort-minPort)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if addr == other {
			continue
		}
		l, err := net.Listen("tcp4", addr)
		if err != nil {
			last = err
			continue
		}
		if err := l.Close(); err != nil {
			return "", fmt.Errorf("look for a free port: %w", err)
		}
		return addr, nil
	}
	return "", fmt.Errorf("found no free port from %d to %d on loopback: %w", minPort, maxPort, last)
}

// portTaken tells from the log of a broker whether it ended for that.
func portTaken(log string) bool {
	return strings.Contains(log, "Address already in use")
}
