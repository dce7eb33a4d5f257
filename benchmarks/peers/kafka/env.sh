# Sourced by the other scripts: where things are and the defaults of every knob.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
KAFKA_PEER_DIR=${KAFKA_PEER_DIR:-$(cd "$HERE/../../.." && pwd)/.cache/kafka-peer}   # class path and logging files
LIBS=$KAFKA_PEER_DIR/libs
PORT=${PORT:-9092}                                            # broker listener on 127.0.0.1
CPORT=${CPORT:-$((PORT + 1))}                                 # KRaft controller listener
DATA=${DATA:-$KAFKA_PEER_DIR/data-$PORT}                      # log.dirs; wiped when WIPE=1
RUN=${RUN:-$KAFKA_PEER_DIR/run-$PORT}                         # config, pid, server log
HEAP=${HEAP:-1G}                                              # broker heap (-Xms and -Xmx)
TOOL_HEAP=${TOOL_HEAP:-512M}                                  # heap of the command-line tools
JAVA=${JAVA:-java}
JVM_FLAGS=${JVM_FLAGS:--server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true}
